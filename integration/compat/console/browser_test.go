package console

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	// seeWait bounds the wait for what a page is to show.
	seeWait = eventually.Deadline
	// testWait bounds everything that one browser does.
	testWait = 30 * time.Minute
)

var pictures = flag.String("pictures", "", "write the pictures of docs/console.md into this directory")

// chromium returns the browser's program.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing := errors.New("no Chromium in PATH: apt-get install chromium")
	enginetest.Need(t, missing, missing)
	return ""
}

// tab is one page of a separate browser.
type tab struct {
	t       *testing.T
	ctx     context.Context
	address string

	mu       sync.Mutex
	problems []string
	urls     map[network.RequestID]string // of requests under way
	lost     []string                     // requests without an answer, and why
}

// open starts a browser at the console of a node.
func open(t *testing.T, endpoint string) *tab {
	t.Helper()
	program, env := still(chromium(t))
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.Env(env...), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.WindowSize(1100, 800),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true),
		chromedp.WSURLReadTimeout(eventually.Deadline),
	)
	bounded, cancel := context.WithTimeout(context.Background(), testWait)
	t.Cleanup(cancel)
	allocator, end := chromedp.NewExecAllocator(bounded, options...)
	t.Cleanup(end)
	p := &tab{t: t, address: endpoint + "/ui/", urls: map[network.RequestID]string{}}
	ctx, closeTab := chromedp.NewContext(allocator, chromedp.WithListener(p.listen))
	t.Cleanup(closeTab)
	p.ctx = ctx
	p.do(chromedp.Navigate(p.address))
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("closing the browser: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.problems, "the browser's console")
	})
	return p
}

// listen keeps what the browser's console reports.
func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var problem string
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.urls[e.RequestID] = e.Request.URL
	case *network.EventLoadingFinished:
		delete(p.urls, e.RequestID)
	case *network.EventLoadingFailed:
		if !e.Canceled {
			p.lost = append(p.lost, p.urls[e.RequestID]+": "+e.ErrorText)
		}
		delete(p.urls, e.RequestID)
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			problem += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			problem = fmt.Sprintf("console.%s", e.Type)
		}
	case *log.EventEntryAdded:
		// An answer that is an error is reported too; which ones there are, tests ask for.
		if e.Entry.Source != log.EntrySourceNetwork && e.Entry.Level == log.EntryLevelError ||
			e.Entry.Source == log.EntrySourceSecurity {
			problem = fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text)
		}
	}
	if problem != "" {
		p.problems = append(p.problems, problem)
	}
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.state())
	}
}

// text is what the page shows now.
func (p *tab) text() string {
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return "nothing: " + err.Error()
	}
	return text
}

// state is what the page shows, and which requests the browser lost, for the test's log.
func (p *tab) state() string {
	shown := p.text()
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("the page shows:\n%s\nlost requests: %q", shown, p.lost)
}

// of is what a JavaScript expression evaluates to.
func of[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", expression, err, p.state())
	}
	return v
}

// run runs a statement of JavaScript.
func (p *tab) run(statement string) {
	p.t.Helper()
	of[bool](p, "{"+statement+"}; true")
}

// await waits until a JavaScript expression is true. chromedp's own way is one that the
// page's policy forbids.
func (p *tab) await(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, seeWait)
	defer cancel()
	if err := eventually.Poll(ctx, func(ctx context.Context) error {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if err == nil && !is {
			err = errors.New("false")
		}
		return err
	}); err != nil {
		p.t.Fatalf("not true within %s: %s: %v\n%s", seeWait, expression, err, p.state())
	}
}

// see waits until the page shows all the texts.
func (p *tab) see(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.await(fmt.Sprintf("document.querySelector('main').innerText.includes(%q)", text))
	}
}

// seeNot makes sure that the page does not show a text, once it shows another.
func (p *tab) seeNot(text, shown string) {
	p.t.Helper()
	p.see(shown)
	require.NotContains(p.t, p.text(), text)
}

// once waits until a JavaScript expression finds an element, and runs a statement with it, called e, before the page
// can change.
func (p *tab) once(find, statement string) {
	p.t.Helper()
	p.await(fmt.Sprintf("(() => { const e = %s; if (e) { %s } return !!e })()", find, statement))
}

// click clicks the link, button or summary that has exactly this text, once it is there.
func (p *tab) click(text string) {
	p.t.Helper()
	p.once(fmt.Sprintf("[...document.querySelectorAll('a, button, summary')].find((e) => e.innerText.trim() === %q && "+
		"!e.disabled)", text), "e.click()")
}

// fill types into the control of a label that can be seen.
func (p *tab) fill(label, text string) {
	p.t.Helper()
	p.once(fmt.Sprintf("[...document.querySelectorAll('label')].find((e) => e.firstChild.textContent === %q && "+
		"e.checkVisibility())?.control", label),
		fmt.Sprintf("e.focus(); e.value = %q; e.dispatchEvent(new Event('input', {bubbles: true}))", text))
}

// visit opens a page by its fragment, the part of the address after #.
func (p *tab) visit(hash string) {
	p.t.Helper()
	p.run(fmt.Sprintf("location.hash = %q", hash))
}

// picture writes a picture of the page for the documentation, if that is wanted.
func (p *tab) picture(name string, height int64, dark bool) {
	p.t.Helper()
	if *pictures == "" {
		return
	}
	p.scheme("light")
	if dark {
		p.scheme("dark")
	}
	p.do(chromedp.EmulateViewport(1000, height))
	p.run("scrollTo(0, 0)")
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	p.scheme("")
	p.do(chromedp.EmulateViewport(1100, 800))
	require.NoError(p.t, os.WriteFile(filepath.Join(*pictures, name), png, 0o644))
	require.Less(p.t, len(png), 200_000, "%s is for a page", name)
}
