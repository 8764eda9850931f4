package mutants

import (
	"bytes"
	"fmt"
)

const head = `# Mutants
Each row is a mistake that was planted in the source, and the first test that found it: each invariant of
[ARCHITECTURE.md](../ARCHITECTURE.md#invariants) is kept by the lines that these mistakes change. The table is written
by ` + "`make mutants`" + `, which runs the unit tests of the package that has the mistake, and then those of up to five packages
that import it. The mistakes themselves are in ` + "`integration/mutants/list.go`" + `. With ` + "`MUTANT_ARGS='-judge simulation'`" + `,
[simulated clusters](simulation.md) have the mistake, one seed after the other, until one is found wrong: the table has
that seed, for some mistakes with earlier plans. At most 300 are tried, or only those of the special plan that is for the
mistake. "–" is a mistake that at least 100 seeds did not show, and an empty field one for which nothing ran. If simulations
cannot find a mistake, the table says why, and the first table does not count it there. "Tried" means that at least 100 seeds
were simulated all the same, and found nothing.
`

// invariants are the names in ARCHITECTURE.md, from 1.
var invariants = []string{
	"One writer", "Revisions are in commit order", "The content of a revision never changes",
	"Acknowledged writes are durable and visible", "Watches are exact", "Unknown outcomes are settled",
	"Progress notifications never overtake", "Nothing is silently ignored",
}

// Page returns docs/mutants.md. The error says that a mutant cannot be planted in the
// repository at root.
func (v Verdicts) Page(root string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(head)
	fmt.Fprint(&out, "\n| origin | mistakes |")
	rule := "\n|---|---|"
	for _, j := range Judges {
		fmt.Fprintf(&out, " found by %ss |", j.Judge.Title())
		rule += "---|"
	}
	out.WriteString(rule + "\n")
	for _, origin := range []Origin{Etcd, Review, Fresh, Later, Newest} {
		of := func(m Mutant) bool { return m.Origin == origin }
		fmt.Fprintf(&out, "| %s | %d |", origin, count(of))
		for _, j := range Judges {
			asked := func(m Mutant) bool {
				by, ok := v[m.Name][j.Name]
				return of(m) && ok && (by != "" || j.Name != simulation || unseen[m.Name] == "")
			}
			fmt.Fprintf(&out, " %d of %d |", count(func(m Mutant) bool { return asked(m) && v[m.Name][j.Name] != "" }), count(asked))
		}
		out.WriteByte('\n')
	}
	for i, invariant := range invariants {
		fmt.Fprintf(&out, "\n## %d. %s\n| mistake | in | imitates |", i+1, invariant)
		rule := "\n|---|---|---|"
		for _, j := range Judges {
			fmt.Fprintf(&out, " %s |", j.Judge.Title())
			rule += "---|"
		}
		out.WriteString(rule + "\n")
		for _, m := range All {
			if m.Invariant != i+1 {
				continue
			}
			if err := v.row(&out, root, m); err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), nil
}

func (v Verdicts) row(out *bytes.Buffer, root string, m Mutant) error {
	file, err := m.File(root)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	fmt.Fprintf(out, "| %s | `%s` | %s |", m.Name, file, m.Imitates)
	for _, j := range Judges {
		by, asked := v[m.Name][j.Name]
		switch why := unseen[m.Name]; {
		case by != "":
		case j.Name == simulation && why != "":
			by = why
			if asked {
				by += " (tried)"
			}
		case asked:
			by = "–"
		}
		fmt.Fprintf(out, " %s |", by)
	}
	out.WriteByte('\n')
	return nil
}

// count returns how many mutants are of a kind.
func count(is func(Mutant) bool) (n int) {
	for _, m := range All {
		if is(m) {
			n++
		}
	}
	return n
}
