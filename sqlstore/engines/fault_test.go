package engines_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// broken is a store whose connections can be broken, and another one on the same
// database that sees what is really there.
type broken struct {
	faults         *faultdriver.Injector
	store, witness *sqldb.Store
	token          coder.FenceToken
	n              int
}

func openBroken(t testing.TB, database func(testing.TB) string) *broken {
	t.Helper()
	return openBrokenAs(t, database, func(base driver.Connector) driver.Connector { return base })
}

// openBrokenAs is openBroken with a disguise over the faults.
func openBrokenAs(t testing.TB, database func(testing.TB) string,
	disguise func(driver.Connector) driver.Connector) *broken {
	t.Helper()
	raw := database(t)
	b := &broken{faults: faultdriver.New(), token: coder.FenceToken{Sequence: 1}}
	b.witness = openURL(t, raw, sqlstore.Options{Shared: true})
	b.store = openURL(t, raw, sqlstore.Options{Shared: true, WrapConnector: func(base driver.Connector) driver.Connector {
		return disguise(b.faults.Wrap(base))
	}})
	w := b.witness.BeginBatchWrite()
	w.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(b.token))
	w.Put([]byte("plain"), []byte("0"))
	w.Put([]byte("doomed"), []byte("x"))
	require.NoError(t, w.Commit(context.Background()))
	return b
}

// shapes are batches of the two ways to commit. Both swap the fence row and
// create rows; the second one has changes that no single upsert can express.
var shapes = map[string]func(w sqlstore.BatchWrite, n int, plain []byte){
	"one statement": func(sqlstore.BatchWrite, int, []byte) {},
	"transaction": func(w sqlstore.BatchWrite, n int, plain []byte) {
		w.CAS([]byte("plain"), fmt.Append(nil, n), plain)
		w.Put([]byte("put"), fmt.Append(nil, n))
		w.Del([]byte("doomed"))
		w.DelCurrent([]byte("other"), []byte("x"))
	},
}

// commit commits the next batch of a shape and finds out whether it took effect.
// It fails the test if only a part did.
func (b *broken) commit(ctx context.Context, t testing.TB,
	shape func(sqlstore.BatchWrite, int, []byte)) (applied bool, err error) {
	t.Helper()
	b.n++
	bg := context.Background()
	created := [][]byte{fmt.Appendf(nil, "created %06d a", b.n), fmt.Appendf(nil, "created %06d b", b.n)}
	plain, err := b.witness.Get(bg, []byte("plain"))
	require.NoError(t, err)
	next := coder.FenceToken{Sequence: b.token.Sequence + 1, Attempt: int64(b.n)}
	w := b.store.BeginBatchWrite()
	w.PutIfNotExist(created[0], []byte("x"))
	w.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), coder.EncodeFenceToken(b.token))
	shape(w, b.n, plain)
	w.PutIfNotExist(created[1], []byte("x"))
	commitErr := w.Commit(ctx)
	b.faults.Set(nil)

	values, err := b.witness.MultiGet(bg, append(created, coder.FenceKey()))
	require.NoError(t, err)
	applied = bytes.Equal(values[2], coder.EncodeFenceToken(next))
	if (values[0] != nil) != applied || (values[1] != nil) != applied {
		t.Fatalf("a part of the batch was written: rows %q, token written %v (Commit said %v)", values[:2], applied,
			commitErr)
	}
	if applied {
		b.token = next
	} else if !bytes.Equal(values[2], coder.EncodeFenceToken(b.token)) {
		t.Fatalf("the fence row is %x, neither old nor new", values[2])
	}
	return applied, commitErr
}

// truthful fails the test if Commit's answer is a lie.
func truthful(t testing.TB, what string, applied bool, err error) {
	t.Helper()
	switch {
	case err == nil && !applied:
		t.Errorf("%s: committed, but it is not there", what)
	case err != nil && applied && !errors.Is(err, sqlstore.ErrUncertain):
		t.Errorf("%s: said %v, but it is there", what, err)
	}
}

// strike makes the first times statements that match fail, all if times is negative, and returns how many have failed.
func (b *broken) strike(times int, match func(faultdriver.Statement) bool, f faultdriver.Fault) *int {
	struck := new(int)
	b.faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
		if *struck == times || !match(s) {
			return faultdriver.Fault{}
		}
		*struck++
		return f
	})
	return struck
}

func isQuery(s faultdriver.Statement) bool { return s.Kind == faultdriver.Query && !setup(s) }

// setup reports whether s belongs to the set-up of a new connection.
func setup(s faultdriver.Statement) bool {
	return s.Kind == faultdriver.Connect || strings.HasPrefix(s.Text, "SET ") || strings.HasPrefix(s.Text, "PRAGMA ")
}

func TestCommitIsTruthfulWhateverBreaks(t *testing.T) {
	t.Parallel()
	lost := faultdriver.ErrLost
	faults := map[string]faultdriver.Fault{
		"bad connection":                {Before: driver.ErrBadConn, Cut: true},
		"lost before":                   {Before: lost, Cut: true},
		"lost after":                    {After: lost, Cut: true},
		"lost before, connection stays": {Before: lost},
		"lost after, connection stays":  {After: lost},
		"context ends before":           {Hang: true, Cut: true},
		"context ends after":            {Hang: true, After: lost, Cut: true},
	}
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		for shapeName, shape := range shapes {
			t.Run(shapeName, func(t *testing.T) {
				b := openBroken(t, database)
				for name, f := range faults {
					// Statement after statement, until the commit has no more.
					for n := 1; ; n++ {
						ctx, cancel := context.WithCancel(context.Background())
						var hit *faultdriver.Statement
						b.faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
							if s.N != n {
								return faultdriver.Fault{}
							}
							hit = &s
							if f.Hang && f.After == nil {
								cancel()
							}
							f := f
							f.Then = cancel // of a statement that hangs afterwards
							if !f.Hang {
								f.Then = nil
							}
							return f
						})
						applied, err := b.commit(ctx, t, shape)
						cancel()
						if hit == nil {
							require.NoError(t, err, "%s: without a fault", name)
							require.True(t, applied)
							require.Greater(t, n, 1, "%s: no statement failed", name)
							break
						}
						what := fmt.Sprintf("%s at statement %d (%s %.40q)", name, n, hit.Kind, hit.Text)
						truthful(t, what, applied, err)
						deciding := hit.Kind == faultdriver.Commit || hit.Kind == faultdriver.Exec && !setup(*hit) &&
							shapeName == "one statement" && b.store.Database().DialectName() == sqlstore.DialectMySQL
						switch {
						case name == "bad connection" && deciding && err != nil &&
							b.store.Database().DialectName() == sqlstore.DialectMySQL:
							t.Errorf("%s: %v, want it to be repeated: nothing was sent", what, err)
						case !deciding && errors.Is(err, sqlstore.ErrUncertain):
							t.Errorf("%s: %v, but nothing was committed for sure", what, err)
						case deciding && f.After != nil && !f.Hang && !errors.Is(err, sqlstore.ErrUncertain):
							t.Errorf("%s: %v, want ErrUncertain", what, err)
						case err != nil && !errors.Is(err, sqlstore.ErrUncertain) && !errors.Is(err, sqlstore.ErrUnavailable) &&
							!errors.Is(err, context.Canceled):
							t.Errorf("%s: %v wraps no sentinel", what, err)
						}
					}
				}
			})
		}
	})
}

// errRefused stands for an error that wraps none of the sentinels: the statement
// was refused, and would be again.
var errRefused = errors.New("refused")

// serverErrors are the numbers whose meaning is known, by what Commit answers
// when the server gives one instead of committing. Those of TiDB are tidbErrors.
var serverErrors = map[error][]uint16{
	nil: { // undone, and repeated: the commit takes effect
		1020, 1205, 1213, 1243, 1412, 1615, 3101,
	},
	sqlstore.ErrUnavailable: { // nothing was done
		1040, 1041, 1047, 1049, 1129, 1203, 1226, 1907,
		3032, 3168, 3796, 3797, 3798, 3799,
		1036, 1290, 1792, 1836, 1874, 1881, // read-only
	},
	sqlstore.ErrDenied:   {1044, 1045, 1130, 1142, 1227, 1698, 1820},
	sqlstore.ErrFull:     {1021, 1114, 3675},
	sqlstore.ErrTooLarge: {1118, 1153, 1197, 1406},
	sqlstore.ErrUncertain: { // the commit may have happened
		1026, 1030, 1053, 1105, 1152, 1158, 1159, 1160, 1161, 1180, 1184, 1317, 1598, 1927, 1969,
		2003, 2006, 2013, 2999, 3024, 3100, 3169, 4031, 8000, 8999, 9999,
	},
	errRefused: {1064, 1054, 1146, 1364},
}

func TestServerErrorsKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	b := openBroken(t, enginetest.Database)
	for want, numbers := range serverErrors {
		for _, number := range numbers {
			for shapeName, shape := range shapes {
				b.strike(1, func(s faultdriver.Statement) bool { // the one that decides
					return s.Kind == faultdriver.Commit || shapeName == "one statement" && s.Kind == faultdriver.Exec && !setup(s)
				}, faultdriver.Fault{Before: &mysql.MySQLError{Number: number, Message: "injected"}})
				applied, err := b.commit(context.Background(), t, shape)
				want := want
				ok := errors.Is(err, want)
				switch {
				case errors.Is(want, errRefused) && shapeName == "one statement":
					ok = err != nil
					for _, sentinel := range []error{sqlstore.ErrUncertain, sqlstore.ErrUnavailable, sqlstore.ErrTooLarge} {
						ok = ok && !errors.Is(err, sentinel)
					}
				case errors.Is(want, errRefused): // COMMIT knows of no refusal
					ok = errors.Is(err, sqlstore.ErrUncertain)
				case want != nil && !errors.Is(want, sqlstore.ErrUncertain):
					ok = ok && !errors.Is(err, sqlstore.ErrUncertain)
				}
				if !ok || applied != (want == nil) {
					t.Errorf("%s, error %d: applied %v, %v; want %v", shapeName, number, applied, err, want)
				}
			}
		}
	}
	// An error that comes every time is not repeated for ever.
	n := b.strike(-1, func(s faultdriver.Statement) bool { return s.Kind == faultdriver.Exec && !setup(s) },
		faultdriver.Fault{Before: &mysql.MySQLError{Number: 1213}})
	applied, err := b.commit(context.Background(), t, shapes["one statement"])
	require.False(t, applied)
	require.ErrorIs(t, err, sqlstore.ErrUnavailable)
	require.Greater(t, *n, 1)
	require.LessOrEqual(t, *n, 10)
}

func TestReadsAreNeverCutShort(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		ctx := context.Background()
		b := openBroken(t, database)
		var keys [][]byte
		w := b.witness.BeginBatchWrite()
		for i := range 700 {
			raw := fmt.Appendf(nil, "%04d", i)
			r := &coder.Record{Key: raw, ModRevision: 7, Version: 1}
			keys = append(keys, coder.EncodeIndexKey(raw))
			w.PutIfNotExist(coder.EncodeIndexKey(raw), coder.EncodeIndex(coder.Index{ModRevision: 7, Version: 1}))
			w.PutIfNotExist(coder.EncodeVersionKey(raw, 7), coder.EncodeVersion(r))
		}
		require.NoError(t, w.Commit(ctx))
		lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
		floors := make([]sqlstore.Partition, 0, len(keys))
		for _, key := range keys {
			floors = append(floors, sqlstore.Partition{Start: key, End: append(bytes.Clone(key), 0)})
		}
		reads := b.reads(lo, hi, keys, floors)
		reads["List"] = func() (int, error) {
			rows, _, err := b.store.List(ctx, sqlstore.ListQuery{Start: lo, End: hi})
			return len(rows), err
		}
		reads["Lookup"] = func() (int, error) {
			rows, _, err := b.store.Lookup(ctx, keys, 0)
			return len(slices.DeleteFunc(rows, func(row sqlstore.ListRow) bool { return row.Version == nil })), err
		}
		reads["Count"] = func() (int, error) { live, _, err := b.store.Count(ctx, lo, hi, 10); return int(live), err }
		for name, read := range reads {
			want, err := read()
			require.NoError(t, err, "%s", name)
			for _, cut := range []bool{false, true} {
				for _, rows := range []int{0, 1, 13} {
					fault := faultdriver.Fault{Rows: faultdriver.ErrLost, RowsBefore: rows, Cut: cut}
					struck := b.strike(-1, isQuery, fault)
					got, err := read()
					require.Positive(t, *struck, "%s", name)
					if err == nil {
						require.Equal(t, want, got, "%s broken off after %d rows", name, rows)
					} else {
						require.ErrorIs(t, err, sqlstore.ErrUnavailable, "%s broken off after %d rows", name, rows)
					}
					struck = b.strike(1, isQuery, fault) // it is read again
					got, err = read()
					require.Positive(t, *struck, "%s", name)
					require.NoError(t, err, "%s broken off once after %d rows", name, rows)
					require.Equal(t, want, got, "%s broken off once after %d rows", name, rows)
				}
			}
			b.faults.Set(nil)
		}
	})
}

// reads returns the reads of the store, by name. They return how much they have found.
func (b *broken) reads(lo, hi []byte, keys [][]byte, ranges []sqlstore.Partition) map[string]func() (int, error) {
	ctx := context.Background()
	return map[string]func() (int, error){
		"Get": func() (int, error) {
			v, err := b.store.Get(ctx, keys[0])
			if errors.Is(err, sqlstore.ErrKeyNotFound) {
				return 0, nil
			}
			return 1 + len(v), err
		},
		"MultiGet": func() (n int, err error) {
			values, err := b.store.MultiGet(ctx, keys)
			for _, v := range values {
				if v != nil {
					n++
				}
			}
			return n, err
		},
		"Iter": func() (n int, err error) {
			for _, err := range b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, PageBytes: 10_000}) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		},
		"LatestAtOrBefore": func() (n int, err error) {
			rows, err := b.store.LatestAtOrBefore(ctx, ranges)
			for _, row := range rows {
				if row.Key != nil {
					n++
				}
			}
			return n, err
		},
		"SeekNth": func() (int, error) { k, err := b.store.SeekNth(ctx, lo, hi, 0); return len(k), err },
	}
}

// TestRepeatedReadForgetsTheFirstAttempt: rows that an attempt read before its
// connection broke, and that are gone by the next one, are not in the answer.
func TestRepeatedReadForgetsTheFirstAttempt(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		ctx := context.Background()
		b := openBroken(t, database)
		lo, hi := []byte("read/"), []byte("read0")
		keys := [][]byte{[]byte("read/1"), []byte("read/2")}
		reads := b.reads(lo, hi, keys, []sqlstore.Partition{{Start: lo, End: keys[1]}, {Start: keys[1], End: hi}})
		for name, read := range reads {
			fill := b.witness.BeginBatchWrite()
			for _, k := range keys {
				fill.Put(k, []byte("there"))
			}
			require.NoError(t, fill.Commit(ctx))
			struck := b.strike(1, func(s faultdriver.Statement) bool {
				return isQuery(s) && strings.Contains(s.Text, "internal_key")
			}, faultdriver.Fault{Rows: faultdriver.ErrLost, RowsBefore: 1, Cut: true, Then: func() {
				empty := b.witness.BeginBatchWrite()
				for _, k := range keys {
					empty.Del(k)
				}
				if err := empty.Commit(ctx); err != nil {
					t.Error(err)
				}
			}})
			n, err := read()
			require.NoError(t, err, name)
			require.Zero(t, n, "%s found rows in a table that was empty when it was read again", name)
			require.Equal(t, 1, *struck, name)
			b.faults.Set(nil)
		}
	})
}
