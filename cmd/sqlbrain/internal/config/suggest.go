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
	if best := nearest(s.flags, key); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}

// nearest returns the flag whose name is most like key, or "" if none is.
func nearest(flags *pflag.FlagSet, key string) (best string) {
	key = strings.ToLower(strings.ReplaceAll(key, "_", "-"))
	distance := len(key)/3 + 2 // more than a typing error
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
