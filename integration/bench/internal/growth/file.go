package growth

import (
	"cmp"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
)

// File is what was measured.
type File struct {
	Started  time.Time         `json:"started"`
	Machine  machine.Machine   `json:"machine"`
	Versions map[string]string `json:"versions"`
	Points   []Point           `json:"points"`
}

func (p *Point) is(system string, d Dataset) bool {
	return p.System == system && p.Keys == d.Keys && p.Versions == d.Versions && p.ValueSize == d.ValueSize
}

// Has reports whether a size of a system was measured to the end.
func (f *File) Has(system string, d Dataset) bool {
	return slices.ContainsFunc(f.Points, func(p Point) bool { return p.is(system, d) && p.Failure == "" })
}

// Add adds a point, in place of an older one of the same size and system.
func (f *File) Add(p Point) {
	f.Points = slices.DeleteFunc(f.Points, func(old Point) bool { return old.is(p.System, p.Dataset) })
	f.Points = append(f.Points, p)
	slices.SortStableFunc(f.Points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Keys, b.Keys), cmp.Compare(a.Versions, b.Versions))
	})
}
