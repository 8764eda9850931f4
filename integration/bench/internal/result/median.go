package result

import (
	"math"
	"slices"
)

// Spread is the median of rounds, and how far apart they were.
type Spread struct{ Median, Min, Max float64 }

// SpreadOf returns the spread of values; NaN if there are none.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	v := slices.Sorted(slices.Values(values))
	median := v[len(v)/2]
	if len(v)%2 == 0 {
		median = (v[len(v)/2-1] + median) / 2
	}
	return Spread{median, v[0], v[len(v)-1]}
}

// Quantile returns the value that q of the values do not exceed, 0 <= q < 1; NaN if there are none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(values))[int(float64(len(values))*q)]
}

// Of returns the figures of a cell on a system, of all rounds.
func (f *File) Of(system, cell string) []Figure {
	var found []Figure
	for _, g := range f.Figures {
		if g.System == system && g.ID == cell {
			found = append(found, g)
		}
	}
	return found
}

// Spread returns the spread of one number of a cell on a system over the rounds
// that were measured; NaN if none was.
func (f *File) Spread(system, cell string, number func(*Figure) float64) Spread {
	var values []float64
	for _, g := range f.Of(system, cell) {
		if g.Measured() {
			values = append(values, number(&g))
		}
	}
	return SpreadOf(values)
}
