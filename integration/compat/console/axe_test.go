package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// axeScript is where `make axe` installs axe-core.
const axeScript = "axe/node_modules/axe-core/axe.min.js"

var errNoAxe = errors.New("no axe-core: make axe, in the root")

// axe returns the program that finds what makes a page hard to use for people with disabilities.
func axe() (script string, err error) {
	raw, err := os.ReadFile(axeScript)
	if errors.Is(err, os.ErrNotExist) {
		err = errNoAxe
	}
	return string(raw), err
}

// sizes are those of a phone and of a desktop, in CSS pixels.
var sizes = map[string][2]int64{"390": {390, 844}, "1440": {1440, 900}}

// each calls check with the page at each size and in each theme.
func (p *tab) each(check func(size, scheme string)) {
	p.t.Helper()
	for size, of := range sizes {
		for _, scheme := range []string{"light", "dark"} {
			p.scheme(scheme)
			p.do(chromedp.EmulateViewport(of[0], of[1]))
			check(size, scheme)
		}
	}
	p.scheme("")
	p.do(chromedp.EmulateViewport(1100, 800))
}

// scheme is the color scheme that the system prefers, "" if none.
func (p *tab) scheme(name string) {
	p.t.Helper()
	var features []*emulation.MediaFeature
	if name != "" {
		features = append(features, &emulation.MediaFeature{Name: "prefers-color-scheme", Value: name})
	}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	require.NoError(p.t, err)
}

// accessible makes sure, where axe-core is installed, that axe-core finds nothing serious or critical on the page that
// is shown, at each size and in each theme, that the page fits the screen, and that keys reach all links.
func (p *tab) accessible(name string) {
	p.t.Helper()
	script, err := axe()
	if errors.Is(err, errNoAxe) {
		p.t.Log(err) // TestPagesAreAccessible is skipped for that, or fails
		return
	}
	require.NoError(p.t, err)
	if !of[bool](p, `"axe" in window`) {
		p.run(script)
	}
	p.each(func(size, scheme string) {
		at := fmt.Sprintf("%s at %s pixels, %s", name, size, scheme)
		p.run(`window.found = null;
			const frame = () => new Promise(requestAnimationFrame); // in which the page adapts to the size
			frame().then(frame).then(() => axe.run({resultTypes: ["violations"]})).then((r) => { window.found = r.violations
				.filter((v) => v.impact === "serious" || v.impact === "critical")
				.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + " " + n.failureSummary.replaceAll("\n", " "))) })`)
		p.await(`window.found !== null`)
		assert.Empty(p.t, strings.Join(of[[]string](p, `window.found`), "\n"), at)
		assert.LessOrEqual(p.t, of[int64](p, "document.documentElement.scrollWidth"), sizes[size][0],
			"%s is wider than the screen", at)
	})
	assert.Zero(p.t, of[int](p, "document.querySelectorAll('main a:not([href]), main [onclick]').length"),
		"%s has links that no key reaches", name)
}

// TestPagesAreAccessible walks all pages.
func TestPagesAreAccessible(t *testing.T) {
	_, err := axe()
	enginetest.Need(t, err, errNoAxe)
	n, c := start(t, "--console-write")
	fill(t, c)
	p := open(t, n.Endpoint())
	p.see("Members", "SQL statements")
	p.click("Count")
	p.see("186 keys")
	p.accessible("overview")
	p.visit("#/keys//registry/")
	p.see("events/", "31 keys")
	p.accessible("keys")
	p.visit("#/keys//registry/pods/default/")
	p.see("web-00", "v1 Pod")
	p.accessible("pods")
	p.visit("#/keys/?search=WEB-1")
	p.see("10 found among 186 keys.")
	p.accessible("search")
	p.visit("#/key/" + link("/registry/pods/default/web-07"))
	p.see("v1 Pod", "created")
	p.click("Hex")
	p.click("Managed fields")
	p.see("6b 38 73 00", "manager: kubelet")
	p.accessible("pod")
	p.visit("#/key/greeting")
	p.see("hello", "created")
	p.accessible("key")
	put(t, c, "greeting", []byte("again"))
	p.visit("#/key/greeting?from=184&to=")
	p.see("version 2, written at", "+ again")
	p.accessible("compare")
	p.visit("#/watch//registry/")
	p.see("Watching since revision")
	for range 3 {
		put(t, c, "/registry/events/default/event-001", bytes.Repeat([]byte("y"), 200))
	}
	p.see("3 changes")
	p.click("Value")
	p.accessible("watch")
	p.visit("#/leases/")
	p.see("leased")
	p.accessible("leases")
	watched, stop := context.WithCancel(t.Context())
	<-c.Watch(watched, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	p.visit("#/watchers")
	p.see("/registry/pods/*")
	p.accessible("watchers")
	stop()
	p.visit("#/delete//registry/pods/")
	p.see("31 keys at revision")
	p.accessible("delete all")
	p.visit("#/key/greeting")
	p.see("again")
	p.click("Delete")
	p.await(`!!document.querySelector("dialog[open]")`)
	p.accessible("delete")
	p.click("Cancel")
	p.visit("#/new/")
	p.see("New key")
	p.accessible("new key")
	p.visit("#/access")
	p.see("Users and roles", "There are no users.")
	p.accessible("access")
	p.click("Doctor")
	p.see("Not examined yet.")
	p.click("Examine")
	p.see("0 failed.", "journal_mode is wal", "privileges")
	p.accessible("doctor")
	p.visit("#/key/greeting")
	p.click("Edit")
	p.accessible("edit")
	p.visit("#/nothing")
	p.see("There is no such page.")
	p.accessible("no page")
}
