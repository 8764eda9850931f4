package mysql

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// regionKey prints an internal key as TiDB does in SHOW TABLE … REGIONS:
// util/codec's EncodeBytes behind the flag of bytes.
func regionKey(key []byte) string {
	coded := []byte{1}
	for i := 0; i <= len(key); i += 8 {
		group := make([]byte, 8)
		n := copy(group, key[i:])
		coded = append(append(coded, group...), byte(255-(8-n)))
	}
	return "t_104_r_" + hex.EncodeToString(coded)
}

// openDisguised opens a store on a server that says it is a TiDB.
func openDisguised(t testing.TB, d *enginetest.TiDB) *sqldb.Store {
	t.Helper()
	return openURL(t, enginetest.Database(t), sqlstore.Options{WrapConnector: d.Wrap})
}

// TestConformanceAsOnTiDB runs what is sent to TiDB where it can be run.
func TestConformanceAsOnTiDB(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) sqlstore.Store {
		s := openDisguised(t, &enginetest.TiDB{Regions: []string{"t_104_", regionKey([]byte("b")),
			regionKey([]byte("mmmmmmmmm"))}})
		require.Equal(t, productTiDB, s.Info().Product, "the disguise does not work")
		return s
	})
}

func TestPartitionsAreRegions(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte{0, 0xff, 'x'}, 9)
	s := openDisguised(t, &enginetest.TiDB{Regions: []string{
		"t_104_",                      // the table's beginning
		regionKey([]byte("c")),        // out of order: what is wanted is the order of the keys
		regionKey([]byte("a")),        // is the range's own beginning
		regionKey([]byte("bbbbbbbb")), // exactly a group
		regionKey(append([]byte("c"), long...)),
		"t_104_r_3485349823",                          // eight bytes are printed as a number
		"t_104_r_0161",                                // cut off
		"t_104_r_01" + strings.Repeat("61", 8) + "00", // no such padding
		"7480000000000000ff",                          // another table's
		regionKey([]byte("z")),
		regionKey([]byte("zz")),
	}})
	parts, err := s.GetPartitions(context.Background(), []byte("a"), []byte("z"))
	require.NoError(t, err)
	bounds := [][]byte{[]byte("a"), []byte("bbbbbbbb"), []byte("c"), append([]byte("c"), long...), []byte("z")}
	require.Len(t, parts, len(bounds)-1)
	for i, p := range parts {
		require.Equal(t, sqlstore.Partition{Start: bounds[i], End: bounds[i+1]}, p)
	}
}

// TestPartitionsAreTheRegionsOfATiDB: of a real one, which is asked to split the table.
func TestPartitionsAreTheRegionsOfATiDB(t *testing.T) {
	t.Parallel()
	if !enginetest.OnTiDB() {
		t.Skip(enginetest.EnvTiDB + " is not set")
	}
	s := openURL(t, enginetest.Database(t), sqlstore.Options{})
	_, err := s.Database().SQL().ExecContext(t.Context(), "SPLIT TABLE object BY ('bbbbbbbb'), ('c'), ('zz')")
	require.NoError(t, err)
	parts, err := s.GetPartitions(t.Context(), []byte("a"), []byte("z"))
	require.NoError(t, err)
	require.Equal(t, []sqlstore.Partition{{Start: []byte("a"), End: []byte("bbbbbbbb")},
		{Start: []byte("bbbbbbbb"), End: []byte("c")},
		{Start: []byte("c"), End: []byte("z")}}, parts)
}

// TestPartitionsWithoutRegions: some editions of TiDB do not show them.
func TestPartitionsWithoutRegions(t *testing.T) {
	t.Parallel()
	s := openDisguised(t, &enginetest.TiDB{})
	parts, err := s.GetPartitions(context.Background(), []byte("a"), []byte("z"))
	require.NoError(t, err)
	require.Equal(t, []sqlstore.Partition{{Start: []byte("a"), End: []byte("z")}}, parts)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.GetPartitions(ctx, []byte("a"), []byte("z"))
	require.ErrorIs(t, err, context.Canceled)
}

// TestLimitsOfTiDB: what does not fit an entry or a transaction of TiDB is refused
// before anything is sent, and what fits is sent in statements that the packet
// holds.
func TestLimitsOfTiDB(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tidb enginetest.TiDB
		fits int // bytes of a value
		not  int
	}{
		"by default":        {enginetest.TiDB{}, 6<<20 - 100<<10, 6 << 20},
		"the configuration": {enginetest.TiDB{Variables: map[string]string{"tidb_txn_entry_size_limit": "0"}}, 6<<20 - 100<<10, 6 << 20},
		"as the variable":   {enginetest.TiDB{Variables: map[string]string{"tidb_txn_entry_size_limit": "9437184"}}, 9<<20 - 100<<10, 9 << 20},
	} {
		faults := faultdriver.New()
		// The disguise is above: what the faults see is what is sent.
		s := openURL(t, enginetest.StandIn(t), sqlstore.Options{WrapConnector: func(
			base driver.Connector) driver.Connector {
			return c.tidb.Wrap(faults.Wrap(base))
		}})
		put := func(n, rows int) error {
			b := s.BeginBatchWrite()
			for i := range rows {
				b.PutIfNotExist(fmt.Appendf(nil, "%d/%d", n, i), make([]byte, n))
			}
			return b.Commit(context.Background())
		}
		require.NoError(t, put(c.fits, 1), "%s: a value of %d bytes", name, c.fits)
		faults.Set(nil)
		require.ErrorIs(t, put(c.not, 1), sqlstore.ErrTooLarge, "%s: a value of %d bytes", name, c.not)
		require.ErrorIs(t, put(1<<20, 100), sqlstore.ErrTooLarge, "%s: a batch of 100 MiB", name)
		for _, seen := range faults.Seen() { // a spare connection may be made, which sends none for the table
			require.NotContains(t, seen.Text, "object", "%s: sent for what does not fit", name)
		}
	}
}

// TestTiDBMayRefuseSettingsThatAreRight: TiDB Cloud does not let sessions set some variables. They may
// have the right values already.
func TestTiDBMayRefuseSettingsThatAreRight(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"tidb_guarantee_linearizability": true, "tidb_txn_mode": false} {
		faults, refused := faultdriver.New(), 0
		faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
			if strings.HasPrefix(s.Text, "SET SESSION") && strings.Contains(s.Text, name) {
				refused++
				return faultdriver.Fault{Before: &mysql.MySQLError{Number: 1238, Message: name + " is read only"}}
			}
			return faultdriver.Fault{}
		})
		raw := enginetest.Database(t)
		migrate(t, raw)
		d := &enginetest.TiDB{Variables: map[string]string{"tidb_guarantee_linearizability": "ON"}}
		s, err := open(context.Background(), parse(t, raw), sqlstore.Options{
			WrapConnector: func(base driver.Connector) driver.Connector { return faults.Wrap(d.Wrap(base)) }})
		require.Equal(t, want, err == nil, "%s: %v", name, err)
		require.Positive(t, refused, name)
		if err == nil {
			require.NoError(t, s.Close())
		}
	}
}

// TestTiDBWithOtherSettingsIsRefused: what sessions rely on is verified.
func TestTiDBWithOtherSettingsIsRefused(t *testing.T) {
	t.Parallel()
	raw := enginetest.Database(t)
	migrate(t, raw)
	for name, value := range map[string]string{"tidb_txn_mode": "optimistic", "tidb_guarantee_linearizability": "OFF",
		"tidb_low_resolution_tso": "ON", "tidb_enable_external_ts_read": "ON", "tidb_constraint_check_in_place_pessimistic": "OFF",
		"tidb_super_read_only": "ON", "tidb_txn_entry_size_limit": "1000"} {
		d := &enginetest.TiDB{Variables: map[string]string{name: value}}
		_, err := open(t.Context(), parse(t, raw), sqlstore.Options{WrapConnector: d.Wrap})
		require.ErrorIs(t, err, sqlstore.ErrUnfit, "%s = %s", name, value)
		require.ErrorContains(t, err, name)
	}
}

// A deletion has no version row, and is not looked for again.
func TestLookupOfADeletionOnTiDB(t *testing.T) {
	t.Parallel()
	faults := faultdriver.New()
	s := openURL(t, enginetest.Database(t), sqlstore.Options{WrapConnector: func(base driver.Connector) driver.Connector {
		return new(enginetest.TiDB).Wrap(faults.Wrap(base))
	}})
	key, index := coder.EncodeIndexKey([]byte("k")), coder.EncodeIndex(coder.Index{ModRevision: 3, Tombstone: true})
	b := s.BeginBatchWrite()
	b.PutIfNotExist(key, index)
	require.NoError(t, b.Commit(t.Context()))
	reads := 0
	for range 2 { // the first prepares the statement
		faults.Set(nil)
		rows, _, err := s.Lookup(t.Context(), [][]byte{key}, 0)
		require.NoError(t, err)
		require.Equal(t, []sqlstore.ListRow{{Key: key, Index: index}}, rows)
		reads = len(faults.Seen())
	}
	require.Equal(t, 2, reads)
}
