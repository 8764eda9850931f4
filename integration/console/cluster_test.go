package console

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
)

// A follower answers reads itself, and sends on what changes something.
func TestAFollowersConsole(t *testing.T) {
	chromium(t)
	nodes := cluster.Start(t, cluster.Config{Patient: true, Extra: []string{"--console", "--console-write"}})
	follower := (nodes.Leader() + 1) % nodes.Size()
	c := nodes.Client()
	put(t, c, "greeting", []byte("hello"))
	p := open(t, nodes.Node(follower).Endpoint())
	p.see("Members", "revisions behind the leader", "follower")
	p.await(`document.querySelectorAll("main table")[0].querySelectorAll("tbody tr").length === 3`)
	p.await(`[...document.querySelectorAll("td")].filter((e) => e.innerText === "alive").length === 3`)
	p.await(`[...document.querySelectorAll(".tile")].some((e) => /^Feed lag\s+0/.test(e.innerText))`)
	p.await(`document.querySelector("#who").innerText === "authentication is off"`)

	// The figures of all members: a watcher of the leader is counted, next to the feeds of the followers, and each
	// member has its revision and memory.
	leader := nodes.Node(nodes.Leader()).Client()
	<-leader.Watch(t.Context(), "greeting", clientv3.WithCreatedNotify())
	p.await(`[...document.querySelectorAll(".tile")].some((e) => /^Watchers\s+3/.test(e.innerText))`)
	p.await(`[...document.querySelectorAll("main table")[0].querySelectorAll("tbody tr")].every((e) => /^\d+$/.test(e.cells[3].innerText) && /MiB/.test(e.cells[6].innerText))`)
	p.accessible("cluster")

	p.click("Keys")
	p.click("greeting")
	p.see("hello")
	p.click("Edit")
	p.fill("Value", "from a follower")
	p.click("Save")
	p.see("version 2")
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

	nodes.Stop((follower + 1) % nodes.Size())
	p.click("Overview")
	p.see("not alive")
	p.await(`[...document.querySelectorAll("main table")[0].querySelectorAll("tbody tr")].filter((e) => e.cells[3].innerText === "–").length === 1`)
}
