package console

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

const (
	// diffBytes and diffTextLines bound each of the texts that are compared.
	diffBytes     = 512 << 10
	diffTextLines = 20_000
	// diffLines bounds the lines that are shown of a comparison.
	diffLines   = 2000
	diffContext = 3
)

// diffBody is a line diff.
type diffBody struct {
	Hunks []hunkBody `json:"hunks"`
	// Note says why lines are missing.
	Note string `json:"note,omitempty"`
}

type hunkBody struct {
	From  int        `json:"from"` // line numbers, from 1
	To    int        `json:"to"`
	Lines []lineBody `json:"lines"`
}

type lineBody struct {
	Op   string `json:"op"` // " ", "-" or "+"
	Text string `json:"text"`
}

// tooLong is the note of what is not compared.
const tooLong = "too long to be compared"

var ops = map[udiff.OpKind]string{udiff.Equal: " ", udiff.Delete: "-", udiff.Insert: "+"}

// diff compares two texts line by line.
func diff(older, newer string) *diffBody {
	out := &diffBody{Hunks: []hunkBody{}}
	for _, text := range []string{older, newer} {
		if len(text) > diffBytes || strings.Count(text, "\n") > diffTextLines {
			out.Note = tooLong
			return out
		}
	}
	// Otherwise a last line would differ from the same line that others follow.
	older, newer = wholeLines(older), wholeLines(newer)
	unified, err := udiff.ToUnifiedDiff("", "", older, udiff.Lines(older, newer), diffContext)
	if err != nil {
		out.Note = "cannot be compared: " + err.Error()
		return out
	}
	left := diffLines
	for _, h := range unified.Hunks {
		hunk := hunkBody{From: h.FromLine, To: h.ToLine}
		for _, l := range h.Lines {
			if left--; left < 0 {
				out.Note = "only the first lines are shown"
				break
			}
			hunk.Lines = append(hunk.Lines, lineBody{ops[l.Kind], strings.TrimSuffix(l.Content, "\n")})
		}
		if len(hunk.Lines) > 0 {
			out.Hunks = append(out.Hunks, hunk)
		}
		if left < 0 {
			break
		}
	}
	return out
}

func wholeLines(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
