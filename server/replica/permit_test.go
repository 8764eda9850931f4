package replica

import (
	"errors"
	"reflect"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
)

// TestZeroPermitRefusesEveryEntryPoint calls every method that takes a permit with none.
// Nothing is read, and nothing is written.
func TestZeroPermitRefusesEveryEntryPoint(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustGrant(t, b, 7, 3600)
	mustTxn(t, b, putLeased("k", 7))
	mustTxn(t, b, put("k2", "v"))
	before := b.seen.Token()
	none, ctx, key := auth.Permit{}, t.Context(), mvcc.KeyRange{Key: []byte("k")}
	calls := map[string]func() error{
		"Range": func() error { _, err := b.Range(ctx, none, &mvcc.RangeRequest{KeyRange: key}, true); return err },
		"RangeStream": func() error {
			return b.RangeStream(ctx, none, &mvcc.RangeRequest{KeyRange: key}, false, 1,
				func(*mvcc.RangeResult, bool) error { t.Error("sent"); return nil })
		},
		"ReadRevision": func() error { _, err := b.ReadRevision(ctx, none, false); return err },
		"Txn": func() error {
			_, err := b.Txn(ctx, none, put("k", "w"), true)
			if _, rerr := b.Txn(ctx, none, &mvcc.Txn{Then: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: key}}}},
				false); !errors.Is(rerr, auth.ErrNoPermit) {
				t.Errorf("a transaction that reads: %v", rerr)
			}
			return err
		},
		"Children": func() error {
			_, err := b.Children(ctx, none, &read.ChildrenRequest{Delimiter: '/', Limit: 1})
			return err
		},
		"KeyHistory": func() error {
			_, err := b.KeyHistory(ctx, none, &read.KeyHistoryRequest{Key: key.Key, Limit: 1})
			return err
		},
		"Watched":         func() error { _, _, err := b.Watched(ctx, none, 1); return err },
		"Compact":         func() error { _, err := b.Compact(ctx, none, 2, true); return err },
		"LeaseGrant":      func() error { _, err := b.LeaseGrant(ctx, none, 8, 60); return err },
		"LeaseRevoke":     func() error { _, err := b.LeaseRevoke(ctx, none, 7); return err },
		"LeaseKeepAlive":  func() error { _, err := b.LeaseKeepAlive(ctx, none, 7); return err },
		"LeaseTimeToLive": func() error { _, err := b.LeaseTimeToLive(ctx, none, 7, true); return err },
		"Leases":          func() error { _, err := b.Leases(ctx, none); return err },
		"ListAlarms":      func() error { _, err := b.ListAlarms(ctx, none); return err },
		"RaiseAlarm": func() error {
			_, err := b.RaiseAlarm(ctx, none, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt})
			return err
		},
		"DisarmAlarm": func() error {
			_, err := b.DisarmAlarm(ctx, none, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt})
			return err
		},
		"HashKV": func() error {
			_, err := b.HashKV(ctx, none, 0, func(*coder.Record) ([]byte, error) { return nil, nil })
			return err
		},
		"Hash":         func() error { _, err := b.Hash(ctx, none); return err },
		"Defragment":   func() error { return b.Defragment(ctx, none) },
		"OpenSnapshot": func() error { _, err := b.OpenSnapshot(ctx, none); return err },
		"ChangeAuth":   func() error { _, err := b.ChangeAuth(ctx, none, setUser("me", "x")); return err },
		"IssueToken": func() error {
			_, _, err := b.IssueToken(ctx, none, "abc",
				func(*auth.Rows) (coder.Token, error) { return coder.Token{User: "me"}, nil })
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, auth.ErrNoPermit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := b.seen.Token(); after != before {
		t.Errorf("the fence row was %+v, and is %+v", before, after)
	}
	// No entry point is left out.
	permit := reflect.TypeFor[auth.Permit]()
	for m := range reflect.TypeFor[*Replica]().Methods() {
		for i := range m.Type.NumIn() {
			if m.Type.In(i) == permit && calls[m.Name] == nil {
				t.Errorf("%s takes a permit and is not tested", m.Name)
			}
		}
	}
}
