package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// suggest names the setting that key most likely was meant to be, or says why sqlbrain does not have it.
func (s *Settings) suggest(key string) string {
	if why := etcdFlags[key]; why != "" {
		return ", which etcd has: " + why
	}
	if best := nearest(s.flags, key, mistyped(key)+1); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}

// mistyped is how many bytes of a name may be wrong.
func mistyped(name string) int { return len(name) / 3 }

// nearest returns the flag whose name is most like key, or "" if more than most bytes differ in all.
func nearest(flags *pflag.FlagSet, key string, most int) (best string) {
	key = strings.ToLower(strings.ReplaceAll(key, "_", "-"))
	distance := most + 1
	flags.VisitAll(func(f *pflag.Flag) {
		if d := editDistance(key, f.Name); d < distance && !f.Hidden {
			best, distance = f.Name, d
		}
	})
	return best
}

// editDistance counts the bytes to insert, delete or replace to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
