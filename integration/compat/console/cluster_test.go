package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestAFollowersConsole: a follower answers reads itself, sends on what changes something, and shows what only the
// leader knows, and that the leader is lost as soon as it does not answer.
func TestAFollowersConsole(t *testing.T) {
	chromium(t)
	nodes := harness.StartCluster(t, harness.ClusterConfig{Patient: true, Extra: []string{"--console", "--console-write"}})
	leader := nodes.Leader()
	follower, other := (leader+1)%nodes.Size(), (leader+2)%nodes.Size()
	name := func(i int) string { return nodes.Node(i).Name() }
	c := nodes.Client()
	put(t, c, "greeting", []byte("hello"))
	for range 3 {
		_, err := c.Grant(t.Context(), 3600)
		require.NoError(t, err)
	}
	p := open(t, nodes.Node(follower).Endpoint())
	p.see("Members", "revisions behind the leader", "follower")
	p.await(`document.querySelectorAll("main table")[0].querySelectorAll("tbody tr").length === 3`)
	p.await(`[...document.querySelectorAll("td")].filter((e) => e.innerText === "alive").length === 3`)
	p.await(`[...document.querySelectorAll(".tile")].some((e) => /^Feed lag\s+0/.test(e.innerText))`)
	p.await(`document.querySelector("#who").innerText === "authentication is off"`)
	tile := func(label string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".tile")].find((e) => e.querySelector(".label").innerText === %q).innerText.replaceAll(/\s+/g, " ")`, label)
	}
	p.await(tile("Leases") + ` === "Leases 3 known to the leader"`)
	p.await(tile("Watchers") + `.includes("of all members")`)
	p.await(tile("Commit") + `.includes("only the leader commits")`)

	// The figures of all members: a watcher of the leader is counted, next to the feeds of the followers, and each
	// member has its revision and memory.
	<-nodes.Node(leader).Client().Watch(t.Context(), "greeting", clientv3.WithCreatedNotify())
	p.await(`[...document.querySelectorAll(".tile")].some((e) => /^Watchers\s+3/.test(e.innerText))`)
	p.await(`[...document.querySelectorAll("main table")[0].querySelectorAll("tbody tr")].every((e) => /^\d+$/.test(e.cells[3].innerText) && /MiB/.test(e.cells[6].innerText))`)

	// The names of the others lead to their consoles.
	links := `[...document.querySelector("main table").querySelectorAll("tbody a")].map((e) => e.innerText + " " + e.href).sort().join()`
	want := []string{name(leader) + " " + nodes.Node(leader).Endpoint() + "/ui/", name(other) + " " +
		nodes.Node(other).Endpoint() + "/ui/"}
	slices.Sort(want)
	p.await(fmt.Sprintf(`%s === %q`, links, strings.Join(want, ",")))
	p.run(`window.link = document.querySelector("main table tbody a"); link.focus()`)
	written := put(t, c, "greeting", []byte("hello"))
	p.await(fmt.Sprintf(`document.querySelector(".tile .number").innerText === "%d"`, written)) // it was drawn again
	require.True(t, of[bool](p, `document.activeElement === window.link`))

	// Plots of what a follower never has are left out, and it says where they are.
	titles := `[...document.querySelectorAll("#plots figure")].filter((e) => e.checkVisibility()).map((e) => e.querySelector("figcaption span").innerText).join()`
	p.await(titles + ` === "Requests per second,Reads per second,Events per second,SQL statement, mean,Watchers of this node,Memory of this process,Database"`)
	p.see("Writes, commits and leases are figures of the leader: " + name(leader))
	p.accessible("follower")

	p.click("Watchers")
	p.see("Watchers of this node, "+name(follower), "The overview counts the watchers of all members.")

	p.click("Keys")
	p.click("greeting")
	p.see("hello")
	p.click("Edit")
	p.fill("Value", "from a follower")
	p.click("Save")
	p.see("version 3")
	require.Equal(t, "from a follower", value(t, c, "greeting"))
	p.click("Users")
	p.see("Authentication is off", "There are no users.")
	p.click("Add a role")
	p.fill("Role", "reader")
	p.click("Add role")
	p.await(`document.querySelector("#roles").innerText.includes("reader")`)
	roles, err := c.RoleList(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"reader"}, roles.Roles)

	// A killed leader is no follower that is alive.
	p.click("Overview")
	p.see(name(leader))
	p.run(fmt.Sprintf(`window.wrong = [];
		new MutationObserver(() => {
			const row = [...document.querySelector("main table").querySelectorAll("tbody tr")].find((e) => e.cells[0].innerText.startsWith(%q));
			if (row?.cells[1].innerText === "follower") window.wrong.push(row.innerText);
		}).observe(document.querySelector("main"), {subtree: true, childList: true})`, name(leader)))
	nodes.Kill(leader)
	banner := `document.querySelector("#banner").innerText`
	p.await(banner + fmt.Sprintf(`.includes("The cluster has lost members.") && %s.includes(%q)`, banner, name(leader)))
	p.await(banner + `.includes("is not alive")`)
	require.Empty(t, of[[]string](p, `window.wrong`))
	p.accessible("lost leader")
	nodes.Start(leader)
	p.await(banner + ` === ""`)

	nodes.Stop(leader)
	p.see("stopped")
	p.await(`[...document.querySelectorAll("main table")[0].querySelectorAll("tbody tr")].filter((e) => e.cells[3].innerText === "–").length === 1`)
}
