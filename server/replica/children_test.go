package replica

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// level is what a directory of the keys that begin with prefix shows.
func level(keys []string, prefix string) []string {
	var names []string
	for _, k := range keys {
		rest, ok := strings.CutPrefix(k, prefix)
		if !ok {
			continue
		}
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			k = prefix + rest[:i+1]
		}
		if len(names) == 0 || names[len(names)-1] != k {
			names = append(names, k)
		}
	}
	return names
}

func TestChildrenListsOneLevel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := open(t, newStore(t), func(c *Config) { c.RecordCache = 0 })
	ctx := t.Context()
	letters := []string{"a", "b", "/", "//", "\xff", "\x00", "c/d"}
	exists := map[string]bool{"a/\xff\xff/x": true, "a/b/c": true, "\xff/x": true}
	for range 300 {
		k := "k"
		for range random.IntN(6) {
			k += letters[random.IntN(len(letters))]
		}
		exists[k] = true
	}
	var keys []string
	for k := range exists {
		mustTxn(t, b, put(k, "v"))
		if random.IntN(4) == 0 {
			mustTxn(t, b, del(k))
			continue
		}
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "k", "k/", "ka", "k\xff", "k/a/", "a/", "a/\xff\xff", "\xff", "none"} {
		for _, limit := range []int{1, 2, 7, 1000} {
			t.Run(fmt.Sprintf("%q by %d", prefix, limit), func(t *testing.T) {
				var got []string
				q := &read.ChildrenRequest{Prefix: []byte(prefix), Delimiter: '/', Limit: limit}
				for {
					res, err := b.Reader.Children(ctx, auth.System, q)
					require.NoError(t, err)
					require.LessOrEqual(t, len(res.Children), limit)
					for _, c := range res.Children {
						got = append(got, string(c.Name))
						require.Equal(t, c.Record == nil, bytes.HasSuffix(c.Name, []byte("/")) && len(c.Name) > len(prefix))
					}
					if q.After = res.Next; res.Next == nil {
						break
					}
					require.NotEmpty(t, res.Children, "a page that goes on has something")
				}
				require.Equal(t, level(keys, prefix), got)
			})
		}
	}
}
