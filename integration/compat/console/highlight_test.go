package console

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHighlightingIsBounded: each quote of a string that does not end was tried as the start of a string, up to the end
// of the text.
func TestHighlightingIsBounded(t *testing.T) {
	n, c := start(t)
	p := open(t, n.Endpoint())
	p.see("Overview")
	p.run(`window.shape = (text) => import("./highlight.js").then((m) => {
		const parts = m.highlight(text);
		window.got = [parts.map((e) => e.textContent ?? e).join("") === text, parts.filter((e) => e instanceof Node).length, parts.find((e) => e instanceof Node)?.textContent.length ?? 0];
	})`)
	for name, c := range map[string]struct{ text, want string }{
		"a string that does not end":    {"`[\"` + `\\\\\"`.repeat(60000)", `true,1,120001`},
		"and ends with a backslash":     {"`[\"` + `\\\\\"`.repeat(60000) + `\\\\`", `true,1,120002`},
		"more parts than are coloured":  {"`[` + `1,`.repeat(90000) + `1]`", `true,10000,1`},
		"of YAML too":                   {"`a: 1\\n`.repeat(39000)", `true,10000,1`},
		"a text that is longer than is": {"`[` + `1,`.repeat(100000) + `1]`", `true,0,0`},
	} {
		p.run("window.got = null; shape(" + c.text + ")")
		p.await("window.got !== null")
		require.Equal(t, c.want, of[string](p, `window.got.join()`), name)
	}

	// A value like that is shown.
	put(t, c, "key", []byte(`["`+strings.Repeat(`\"`, 99_000)))
	p.visit("#/key/key")
	p.await(`document.querySelector("#value")?.textContent.length === 198002`)
}
