package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// row is the text of the row that a link of this text is in.
func row(link string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("main tr")].find((e) => e.querySelector("a")?.innerText === %q)?.innerText.replaceAll(/\s+/g, " ").trim()`, link)
}

func TestListsShowKindSizeLeaseAndCount(t *testing.T) {
	n, c := start(t)
	fill(t, c)
	lease, err := c.Grant(t.Context(), 3600)
	require.NoError(t, err)
	put(t, c, "/registry/leased", []byte("four"), clientv3.WithLease(lease.ID))
	p := open(t, n.Endpoint())
	p.visit("#/keys//registry/")
	p.await(row("events/") + ` === "events/ 150 keys"`)
	p.await(row("secrets/") + ` === "secrets/ 1 key"`)
	p.await(fmt.Sprintf(`%s.startsWith("leased text 4 B %x ")`, row("leased"), lease.ID))
	p.visit("#/keys//registry/pods/default/")
	p.await(row("web-07") + `.startsWith("web-07 v1 Pod ")`)
	p.await(row("damaged") + `.startsWith("damaged binary 43 B")`)

	// At a phone's width the name, kind and size are left.
	p.do(chromedp.EmulateViewport(390, 844))
	p.await(`[...document.querySelectorAll("main thead th")].filter((e) => e.checkVisibility()).map((e) => e.innerText).join() === "Name,Kind,Size"`)
}

func TestSearchInKeys(t *testing.T) {
	n, c := start(t)
	fill(t, c)
	p := open(t, n.Endpoint())
	p.click("Keys")
	p.fill("Keys that begin with", "/registry/")
	p.fill("and have in them", "EVENT-1")
	p.click("Show")
	p.await(`location.hash === "#/keys//registry/?search=EVENT-1"`)
	p.see("/registry/events/default/event-100", "50 found among 183 keys.")
	p.fill("and have in them", "default/")
	p.click("Show")
	p.see("100 found among", "Search on")
	p.click("Search on")
	p.see("/registry/secrets/default/login", "183 found among 183 keys.")
	put(t, c, "/registry/NoWhere", nil)
	p.fill("and have in them", "nowhere")
	p.click("Show")
	p.see("/registry/NoWhere", "1 found among 184 keys.")
	p.fill("and have in them", "now here")
	p.click("Show")
	p.see("0 found among 184 keys.")
}

func TestWatchShowsChangesAsTheyHappen(t *testing.T) {
	n, c := start(t)
	fill(t, c)
	p := open(t, n.Endpoint())
	p.visit("#/keys//registry/")
	p.click("Watch")
	p.see("Watching since revision")
	p.await(`document.title === "registry/ – / – Watch – sqlbrain"`)
	put(t, c, "elsewhere", []byte("x"))
	put(t, c, "/registry/pods/default/web-07", stored(t, pod("web-07", "example.org/web:3.0")))
	put(t, c, "/registry/new", []byte("<b>new</b>"))
	_, err := c.Delete(t.Context(), "/registry/new")
	require.NoError(t, err)
	p.see("3 changes, the last at revision")
	require.Equal(t, []string{"deleted /registry/new", "created /registry/new", "changed /registry/pods/default/web-07"},
		of[[]string](p, `[...document.querySelectorAll(".version .head")].map((e) => e.children[0].innerText + " " + e.children[1].innerText)`))
	p.run(`document.querySelectorAll("summary")[1].click()`)
	p.see("image: example.org/web:3.0")

	// What changes during a pause is shown after it.
	p.click("Pause")
	p.see("Paused.")
	put(t, c, "/registry/paused", []byte("x"))
	p.click("Continue")
	p.see("4 changes", "/registry/paused")

	// One key only.
	p.visit("#/key/" + link("/registry/new"))
	p.click("Watch")
	p.see("Watching since revision")
	put(t, c, "/registry/newer", []byte("x"))
	put(t, c, "/registry/new", []byte("again"))
	p.see("1 change,", "/registry/new")
	p.seeNot("newer", "1 change,")
}

func TestLeasesAndWatchers(t *testing.T) {
	n, c := start(t)
	fill(t, c)
	p := open(t, n.Endpoint())
	p.visit("#/key/leased")
	p.see("of 1 h 0 min left")
	p.run(`document.querySelector("dl a").click()`)
	p.see("Lease ", "1 h 0 min", "leased", "1 shown")
	p.click("Leases")
	p.see("1 shown", "leased")
	<-c.Watch(t.Context(), "/registry/pods/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-c.Watch(t.Context(), "greeting", clientv3.WithCreatedNotify())
	p.click("Watchers")
	p.await(row("/registry/pods/*") + ` === "/registry/pods/* 1 0"`)
	p.await(row("greeting") + ` === "greeting 1 0"`)
}

func TestValueAtAnyRevisionAndDifferences(t *testing.T) {
	n, c := start(t)
	var revisions []int64
	for _, value := range []string{"a\nb\n", "a\nc\n", "a\nb\n"} {
		revisions = append(revisions, put(t, c, "key", []byte(value)))
	}
	p := open(t, n.Endpoint())
	p.visit("#/key/key")
	p.see("version 3")
	p.run(fmt.Sprintf(`document.querySelector("[aria-label='Show revision %d']").click()`, revisions[1]))
	p.see(fmt.Sprintf("This is the key at revision %d.", revisions[1]))
	p.await(`document.querySelector("#value").innerText === "a\nc\n"`)
	p.click("Show it as it is now")
	p.await(`document.querySelector("#value").innerText === "a\nb\n"`)
	p.fill("From revision", fmt.Sprint(revisions[0]))
	p.fill("to revision", fmt.Sprint(revisions[1]))
	p.click("Compare")
	seen := `(() => { const e = document.querySelector("#compare .diff")?.getBoundingClientRect(); return !!e && e.top >= 0 && e.bottom <= innerHeight })()`
	p.await(seen)
	p.see("Lines removed: 1, added: 1")
	p.await(`[...document.querySelectorAll("#compare .add, #compare .del")].map((e) => e.innerText).join() === "- b,+ c"`)
	p.run(fmt.Sprintf(`document.querySelector("[aria-label='Compare with now: revision %d']").click()`, revisions[0]))
	p.await(`document.querySelector("#compare").innerText.includes("There is no difference.")`)
	p.visit("#/key/key?from=1&to=")
	p.await(`document.querySelector("#compare").innerText.includes("the key does not exist")`)
	p.await(`document.querySelector("#compare .add").innerText === "+ a"`)
	p.visit("#/key/key?revision=1")
	p.see("The key did not exist at this revision.")
	p.fill("At", "0s")
	p.click("Show")
	p.see(fmt.Sprintf("This is the key at revision %d, the last one of 0s.", revisions[2]))
	require.Equal(t, fmt.Sprint(revisions[2]),
		of[string](p, `new URLSearchParams(document.querySelector("a[download]").search).get("revision")`))
	p.await(`document.querySelectorAll("#history time").length === 3`)
}

func TestAVersionIsRestored(t *testing.T) {
	n, c := start(t, "--console-write")
	first := put(t, c, "key", []byte("one"))
	put(t, c, "key", []byte("two"))
	p := open(t, n.Endpoint())
	p.visit("#/key/key")
	restore := fmt.Sprintf(`document.querySelector("[aria-label='Restore this version: revision %d']")`, first)
	p.await(restore + " !== null")
	p.await(`document.querySelectorAll("[aria-label^='Restore this version']").length === 1`)
	put(t, c, "key", []byte("three"))
	p.run(restore + ".click()")
	p.click("Restore")
	p.see("the key has changed since it was loaded")
	_, err := c.Delete(t.Context(), "key")
	require.NoError(t, err)
	p.visit("#/keys/")
	p.visit("#/key/key")
	p.see("This key does not exist.")
	p.await(restore + " !== null")
	p.run(restore + ".click()")
	p.click("Restore")
	p.await(`document.querySelector("#value")?.innerText === "one"`)
}

func TestLineEndsAreKept(t *testing.T) {
	n, c := start(t, "--console-write")
	put(t, c, "key", []byte("one\r\ntwo\r\n"))
	p := open(t, n.Endpoint())
	p.visit("#/key/key")
	p.click("Edit")
	p.fill("Value", "one\nthree\n")
	p.click("Save")
	p.see("version 2")
	require.Equal(t, "one\r\nthree\r\n", value(t, c, "key"))
}

func TestValueIsCopiedSavedWrappedAndHighlighted(t *testing.T) {
	n, c := start(t)
	fill(t, c)
	p := open(t, n.Endpoint())
	downloads := t.TempDir()
	_, err := chromedp.Call(p.ctx, browser.SetDownloadBehavior,
		browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: downloads})
	require.NoError(t, err)
	saved := func(name string) (content string) {
		eventually.True(t, name, func() bool {
			raw, err := os.ReadFile(filepath.Join(downloads, name))
			content = string(raw)
			return err == nil && content != "" // the browser reserves the name with an empty file
		})
		return content
	}
	p.visit("#/key/" + link("/registry/pods/default/web-07"))
	p.see("image: example.org/web:2.0")
	require.Equal(t, []string{"apiVersion", "kind"},
		of[[]string](p, `[...document.querySelectorAll("#value .hl-key")].slice(0, 2).map((e) => e.innerText)`))
	p.run(`import("./api.js").then((api) => api.get("key", {key: btoa("/registry/pods/default/web-07").replaceAll("=", "")}))
		.then((got) => { window.readable = got.value.readable })`)
	p.await(`window.readable === document.querySelector("#value").textContent`)
	p.click("Download")
	require.Equal(t, of[string](p, `window.readable`), saved("web-07.yaml"))
	p.click("As stored")
	require.True(t, strings.HasPrefix(saved("web-07"), "k8s\x00"))
	p.run(`document.execCommand = (what) => { window.copied = document.activeElement.value; return what === "copy" };
		Object.defineProperty(navigator, "clipboard", {value: undefined})`)
	p.click("Copy")
	p.see("Copied.")
	p.await(`window.copied === window.readable`)
	wraps := `getComputedStyle(document.querySelector("#value")).whiteSpaceCollapse + getComputedStyle(document.querySelector("#value")).textWrapMode`
	p.await(wraps + ` === "preservenowrap"`)
	p.click("Wrap")
	p.await(wraps + ` === "preservewrap"`)

	// What a Secret holds is not stored in a file either.
	p.visit("#/key/" + link("/registry/secrets/default/login"))
	p.seeNot("As stored", "hidden: 7 bytes")
}

func TestDeleteAllBelowAPrefixAfterAPreview(t *testing.T) {
	n, c := start(t, "--console-write")
	fill(t, c)
	p := open(t, n.Endpoint())
	p.visit("#/keys//registry/events/default/")
	p.click("Delete all")
	p.see("150 keys at revision", "event-000", "and 50 more")
	p.fill("Type 150, how many keys to delete", "15")
	p.run(`document.querySelector("form.remove .danger").click()`)
	require.Equal(t, int64(1), of[int64](p, `document.querySelectorAll("form.remove input:invalid").length`))
	put(t, c, "/registry/events/default/event-150", []byte("late"))
	p.fill("Type 150, how many keys to delete", "150")
	p.run(`document.querySelector("form.remove .danger").click()`)
	p.see("keys were created or changed since the preview")
	p.click("Count again")
	p.fill("Type 151, how many keys to delete", "151")
	p.run(`document.querySelector("form.remove .danger").click()`)
	p.see("151 keys were deleted.")
	left, err := c.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.EqualValues(t, 33, left.Count)
}

func TestObjectsAreEditedAsYAML(t *testing.T) {
	n, c := start(t, "--console-write")
	fill(t, c)
	const key = "/registry/pods/default/web-03"
	image := func() string {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(value(t, c, key)), nil, nil)
		require.NoError(t, err)
		require.Len(t, object.(*corev1.Pod).ManagedFields, 1)
		return object.(*corev1.Pod).Spec.Containers[0].Image
	}
	p := open(t, n.Endpoint())
	p.visit("#/key/" + link(key))
	p.click("Edit")
	p.see("Object, as YAML", "admission, validation and finalizers are bypassed")
	p.await(`document.querySelectorAll("pre").length === 0`) // one pane, not two
	p.click("Cancel")
	p.see("Copy")
	p.await(`document.activeElement.innerText === "Edit"`)
	p.click("Edit")
	yaml := of[string](p, `document.querySelector("textarea").value`)
	p.fill("Object, as YAML", strings.Replace(yaml, "nodeName: node-1", "nodename: node-1", 1))
	p.click("Save")
	p.see("spec.nodename: there is no such field")
	p.fill("Object, as YAML", strings.Replace(yaml, "web:1.0", "web:9.0", 1))
	p.click("Check")
	p.await(`[...document.querySelectorAll("#edit .add, #edit .del")].map((e) => e.innerText.trim()).join() === "-   - image: example.org/web:1.0,+   - image: example.org/web:9.0"`)
	require.Equal(t, "example.org/web:1.0", image())
	p.accessible("yaml")
	p.click("Save")
	p.see("version 2")
	require.Equal(t, "example.org/web:9.0", image())
}

func TestPlotsHaveAxesAndPoints(t *testing.T) {
	n, c := start(t)
	p := open(t, n.Endpoint())
	p.see("This node over time", "Requests per second")
	// The server has kept the figures of the start; there is one more with each answer.
	plot := `[...document.querySelectorAll("#plots figure")].find((e) => e.innerText.startsWith("Memory"))`
	p.await(`/MiB at \d\d:\d\d:\d\d/.test(` + plot + `.innerText)`)
	require.Len(t, of[[]string](p, `[...`+plot+`.querySelectorAll("text")].map((e) => e.textContent)`), 6)
	put(t, c, "key", []byte("x"))
	p.click("1 h")
	p.await(`[...document.querySelectorAll("#plots button")].find((e) => e.innerText === "1 h").ariaPressed === "true"`)
	p.await(plot + `.querySelector("svg").getAttribute("aria-label").startsWith("Memory of this process: ")`)
	p.run(plot + `.querySelector("svg").focus()`)
	p.run(plot + `.querySelector("svg").dispatchEvent(new KeyboardEvent("keydown", {key: "Home", bubbles: true}))`)
	p.await(`!!` + plot + `.querySelector(".cursor")`)
}

// TestDialogsKeepAndReturnTheFocus: a dialog has the focus, Tab does not leave it, and Escape closes it and changes
// nothing.
func TestDialogsKeepAndReturnTheFocus(t *testing.T) {
	n, c := start(t, "--console-write")
	put(t, c, "greeting", []byte("hello"))
	p := open(t, n.Endpoint())
	p.visit("#/key/greeting")
	p.see("Edit")
	p.run(`const b = [...document.querySelectorAll("main .danger")][0]; b.focus(); b.click()`)
	p.await(`document.activeElement.closest("dialog")?.open === true`)
	for range 4 {
		p.do(chromedp.KeyEvent("\t"))
		require.True(t, of[bool](p, `!document.querySelector("main").contains(document.activeElement)`))
	}
	p.do(chromedp.KeyEvent("\u001b"))
	p.await(`!document.querySelector("dialog")`)
	p.await(`document.activeElement.innerText === "Delete"`)
	require.Equal(t, "hello", value(t, c, "greeting"))

	// A dialog asks about its page, and ends with it.
	p.click("Delete")
	p.await(`!!document.querySelector("dialog[open]")`)
	p.visit("#/keys/")
	p.see("greeting", "1 shown")
	p.await(`!document.querySelector("dialog")`)
	require.Equal(t, "hello", value(t, c, "greeting"))

	// A new page takes the focus, and everything that has it shows that.
	p.click("Leases")
	p.await(`document.activeElement.id === "main"`)
	p.do(chromedp.KeyEvent("\t"))
	p.await(`document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle === "solid"`)
}

// TestRevisionsCanBeCopied: they have no separators, which a field for a number refuses, and at a phone's width they
// stay on a line.
func TestRevisionsCanBeCopied(t *testing.T) {
	n, c := start(t)
	var revision int64
	for revision < 1001 {
		revision = put(t, c, "key", []byte("x"))
	}
	p := open(t, n.Endpoint())
	p.await(fmt.Sprintf(`document.querySelector(".tile .number").innerText === "%d"`, revision))
	p.visit("#/key/key")
	p.see(fmt.Sprintf("Revision %d", revision), fmt.Sprintf("revision %d", revision))
	p.visit("#/keys/")
	p.await(row("key") + fmt.Sprintf(`.endsWith(" %d")`, revision))
	p.visit(fmt.Sprintf("#/key/key?from=%d&to=", revision-1))
	p.see("There is no difference.", fmt.Sprintf("written at revision %d", revision))
	for _, page := range []string{"#/keys/", "#/key/key", "#/watch/key?exact=1", "#/delete/key"} {
		p.visit(page)
		p.see(fmt.Sprint(revision))
		require.NotContains(t, p.text(), fmt.Sprintf("1,%03d", revision%1000), page)
	}
}

// TestErrorsThatPassedAreNotShownAnyLonger: the page asks again, and what it could not offer meanwhile is there again.
func TestErrorsThatPassedAreNotShownAnyLonger(t *testing.T) {
	n, c := start(t, "--console-write")
	put(t, c, "greeting", []byte("hello"))
	p := open(t, n.Endpoint())
	p.see("Overview")
	p.run(`window.failing = true;
		const fetched = window.fetch;
		window.fetch = (url, init) => {
			const answer = (status, body) => Promise.resolve(new Response(JSON.stringify(body), {status}));
			if (window.failing && url.includes("api/session")) return answer(200, {auth_enabled: false, user: "", may_write: false, problem: "the leader cannot be asked: no leader"});
			if (window.failing && /api\/(key|history|compare)\?/.test(url)) return answer(503, {error: "etcdserver: no leader"});
			return fetched(url, init);
		}`)
	p.visit("#/key/greeting?from=2&to=")
	p.await(`document.querySelector("#who").innerText === "the leader cannot be asked: no leader"`)
	p.await(`document.querySelectorAll("main .error").length === 3`)
	p.run(`window.failing = false`)
	p.await(`document.querySelector("#who").innerText === "authentication is off"`)
	p.await(`document.querySelectorAll("main .error").length === 0`)
	p.see("Edit", "hello", "There is no difference.", "created")
}
