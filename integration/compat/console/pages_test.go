package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// start returns a node with a console and a client of it, once there is a browser.
func start(t *testing.T, extra ...string) (*harness.Node, *clientv3.Client) {
	t.Helper()
	chromium(t)
	n := harness.StartNode(t, harness.SQLite, append([]string{"--console", "--bcrypt-cost=4", "--auth-token-ttl=3600"},
		extra...)...)
	return n, n.Client()
}

func TestOverview(t *testing.T) {
	n, c := start(t)
	fill(t, c)
	p := open(t, n.Endpoint())
	p.see("Overview", "Revision", "Watchers", "Compaction", "Feed lag", "Members", "default", "alive", "leader",
		"No alarm is raised.", "3.7.3")
	p.await(`document.querySelector("#who").innerText === "read-only"`)

	// Values change while one looks at them.
	revision := `document.querySelector(".tile .number").innerText`
	before := of[string](p, revision)
	put(t, c, "greeting", []byte("again"))
	p.await(revision + ` !== "` + before + `"`)
	p.await(`document.querySelectorAll(".tile .spark path").length > 0`)

	p.click("Count")
	p.see("/registry/events/", "150", "/registry/example.org/things/", "186 keys")
	p.do(chromedp.EmulateViewport(390, 800))
	p.await(`[...document.querySelectorAll("td .id")].every((e) => e.getClientRects().length === 1)`)
	p.do(chromedp.EmulateViewport(1100, 800))
	for *pictures != "" && of[int](p,
		`document.querySelector(".tile .spark path").getAttribute("d").split("L").length`) < 36 {
		put(t, c, "greeting", []byte("busy"))
	}
	p.picture("overview.png", 1560, false)

	_, err := c.Compact(t.Context(), 20)
	require.NoError(t, err)
	p.see("revisions since 20")
}

func TestKeysAndHistory(t *testing.T) {
	n, c := start(t)
	changedAt := fill(t, c)
	p := open(t, n.Endpoint())

	// Down the levels, by clicking.
	p.click("Keys")
	p.see("greeting", `bin\x00ary\xff`, "leased")
	p.click("/")
	p.click("registry/")
	p.see("events/", "example.org/", "pods/", "secrets/")
	p.click("events/")
	p.click("default/")
	p.await(`location.hash === "#/keys//registry/events/default/"`)
	p.await(`document.title === "default/ – /registry/events/ – Keys – sqlbrain"`)
	p.see("event-000", "event-099")
	p.seeNot("event-100", "event-000")
	p.click("More")
	p.see("event-149", "150 shown")

	// By what keys begin with.
	p.fill("Keys that begin with", "/registry/pods/default/web-0")
	p.click("Show")
	p.seeNot("web-10", "10 shown")
	p.see("v1 Pod", "196 B")
	p.picture("keys.png", 640, false)

	p.visit("#/key/" + link("/registry/pods/default/web-07"))
	p.see("v1 Pod", "image: example.org/web:2.0", "managedFields are left out")
	p.see("Revision", "created", "deleted", "changed")
	p.await(`[...document.querySelectorAll(".version .tag")].map((e) => e.innerText).join() === "created,deleted,changed,created"`)
	changed := `[...document.querySelectorAll(".version")][2].innerText`
	p.await(changed + `.includes("-   - image: example.org/web:1.0") || ` + changed +
		`.includes("image: example.org/web:1.1")`)
	lines := of[[]string](p,
		`[...[...document.querySelectorAll(".version")][2].querySelectorAll(".add, .del")].map((e) => e.innerText.replace(/\s+/g, " "))`)
	require.Equal(t, []string{"- - image: example.org/web:1.0", "+ - image: example.org/web:1.1", "- nodeName: node-1",
		"+ nodeName: node-2"}, lines)
	p.click("Hex")
	p.see("6b 38 73 00")
	p.click("Managed fields")
	p.see("manager: kubelet")
	p.click("Managed fields")
	p.seeNot("manager: kubelet", "managedFields are left out")
	p.picture("key.png", 1500, true)

	p.visit("#/key/" + link("/registry/example.org/things/default/one"))
	p.see("example.org/v1 Thing", "size: 3")
	p.visit("#/key/" + link("/registry/pods/default/damaged"))
	p.see("damaged", "6b 38 73 00")
	p.visit("#/key/" + link("/registry/secrets/default/login"))
	p.seeNot("hunter2", "hidden: 7 bytes, fingerprint")
	require.NotContains(t, p.text(), "aHVudGVyMg")
	p.visit("#/key/" + link("greeting"))
	p.seeNot("Edit", "hello, <b>world</b>")
	require.Zero(t, of[int](p, `document.querySelectorAll("main b").length`), "data is text, never HTML")
	p.visit("#/key/" + link("leased"))
	p.see("of 1 h 0 min left")
	p.visit("#/key/" + link("bin\x00ary\xff"))
	p.see(`bin\x00ary\xff`, "00 01 02 ff")
	p.visit("#/key/" + link("never"))
	p.see("This key does not exist", "This key never existed.")
	p.visit("#/nothing")
	p.see("There is no such page.")

	// What is created or deleted empty is not the same value again.
	put(t, c, "empty", nil)
	put(t, c, "empty", nil)
	_, err := c.Delete(t.Context(), "empty")
	require.NoError(t, err)
	p.visit("#/key/empty")
	p.see("Created with an empty value.", "The deleted value was empty.")
	require.Equal(t, 1, strings.Count(p.text(), "The same value was written again."))

	_, err = c.Compact(t.Context(), changedAt)
	require.NoError(t, err)
	p.visit("#/key/" + link("never"))
	p.seeNot("never existed", fmt.Sprintf("This key has not existed since revision %d.", changedAt))
	p.visit("#/key/" + link("/registry/pods/default/web-07"))
	p.see("The version before is compacted.", fmt.Sprintf("What was before revision %d is compacted.", changedAt))
	p.await(`[...document.querySelectorAll(".version .tag")].map((e) => e.innerText).join() === "created,deleted,changed"`)
}

func TestBannerShowsFailingChecks(t *testing.T) {
	n, c := start(t)
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		_, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(),
			&pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_CORRUPT})
		require.NoError(t, err)
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	p := open(t, n.Endpoint())
	banner := `document.querySelector("#banner").innerText`
	p.await(banner + `.includes("data_corruption failed: alarm activated: CORRUPT")`)
	alarm(pb.AlarmRequest_DEACTIVATE)
	p.await(banner + ` === ""`)
}

// TestThemeIsKept: the chosen theme wins over the system's, also after the page is loaded again.
func TestThemeIsKept(t *testing.T) {
	n, _ := start(t)
	p := open(t, n.Endpoint())
	back := `getComputedStyle(document.body).backgroundColor`
	light := of[string](p, back)
	p.click("Theme: system")
	p.click("Theme: light")
	p.await(back + ` !== "` + light + `"`)
	p.do(chromedp.Reload())
	p.await(`document.querySelector("#theme")?.textContent === "Theme: dark"`)
	require.NotEqual(t, light, of[string](p, back))
	p.click("Theme: dark")
	p.await(back + ` === "` + light + `"`)
}

// TestLostQuestionsAreRepeated: a question that did not reach the server is asked again. A
// request that may have been carried out is not.
func TestLostQuestionsAreRepeated(t *testing.T) {
	n, c := start(t)
	put(t, c, "greeting", []byte("hello"))
	p := open(t, n.Endpoint())
	p.see("Overview")
	p.run(`window.asked = {history: 0, login: 0};
		const fetched = window.fetch;
		window.fetch = (url, init) => {
			for (const name of Object.keys(window.asked)) {
				if (url.includes(name) && window.asked[name]++ < 2) return Promise.reject(new TypeError("network"));
			}
			return fetched(url, init);
		}`)
	p.run(`location.hash = "#/key/` + link("greeting") + `"`)
	p.see("History", "Revision 2", "created")
	require.Equal(t, 3, of[int](p, `window.asked.history`))
	p.run(`import("./api.js").then((api) => api.post("login")).catch((error) => { window.refusal = error.message })`)
	p.await(`window.refusal === "The server cannot be reached."`)
	require.Equal(t, 1, of[int](p, `window.asked.login`))
}

func TestTheKeyboardReachesEverything(t *testing.T) {
	n, c := start(t)
	put(t, c, "greeting", []byte("hello"))
	p := open(t, n.Endpoint())
	p.see("Overview")
	focused := func() string {
		p.do(chromedp.KeyEvent("\t"))
		return of[string](p, `document.activeElement.innerText`)
	}
	for _, want := range []string{"Skip to the page", "sqlbrain", "Overview", "Keys"} {
		require.Equal(t, want, focused())
	}
	p.do(chromedp.KeyEvent("\r"))
	p.see("greeting")
}
