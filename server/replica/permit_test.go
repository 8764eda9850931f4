package replica

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
)

// TestZeroPermitRefusesEveryEntryPoint calls every method that takes a permit with none.
// Nothing is read, and nothing is written.
func TestZeroPermitRefusesEveryEntryPoint(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustGrant(t, b, 7, 3600)
	mustTxn(t, b, putLeased("k", 7))
	mustTxn(t, b, put("k2", "v"))
	before, l := b.seen.Token(), b.leading.Load()
	none, ctx, key := auth.Permit{}, t.Context(), mvcc.KeyRange{Key: []byte("k")}
	calls := map[string]func() error{
		"Reader.Range": func() error {
			_, err := b.Reader.Range(ctx, none, &mvcc.RangeRequest{KeyRange: key},
				true)
			return err
		},
		"Reader.RangeStream": func() error {
			return b.Reader.RangeStream(ctx, none, &mvcc.RangeRequest{KeyRange: key}, false, 1,
				func(*mvcc.RangeResult, bool) error { t.Error("sent"); return nil })
		},
		"Reader.Stable": func() error {
			return b.Reader.Stable(ctx, none, false, func(context.Context, *read.Reading) error { t.Error("read"); return nil })
		},
		"Reader.Txn": func() error {
			_, err := b.Reader.Txn(ctx, none, &mvcc.Txn{Then: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: key}}}}, false)
			return err
		},
		"Reader.Now":           func() error { _, err := b.Reader.Now(ctx, none, false); return err },
		"Replica.VerifyLeader": func() error { return b.VerifyLeader(ctx, none) },
		"Replica.Submit":       func() error { return b.Submit(ctx, none, func(auth.Tx) error { return nil }) },
		"Replica.ReadRevision": func() error { _, err := b.ReadRevision(ctx, none, false); return err },
		"Replica.Txn": func() error {
			_, err := b.Txn(ctx, none, put("k", "w"), true)
			if _, rerr := b.Txn(ctx, none, &mvcc.Txn{Then: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: key}}}},
				false); !errors.Is(rerr, auth.ErrNoPermit) {
				t.Errorf("a transaction that reads: %v", rerr)
			}
			return err
		},
		"Reader.Children": func() error {
			_, err := b.Reader.Children(ctx, none, &read.ChildrenRequest{Delimiter: '/', Limit: 1})
			return err
		},
		"Reader.KeyHistory": func() error {
			_, err := b.Reader.KeyHistory(ctx, none, &read.KeyHistoryRequest{Key: key.Key, Limit: 1})
			return err
		},
		"Reader.RevisionAt": func() error { _, err := b.Reader.RevisionAt(ctx, none, time.Now()); return err },
		"Reader.CommitOf":   func() error { _, err := b.Reader.CommitOf(ctx, none, 2); return err },
		"Replica.Compact":   func() error { _, err := b.Compact(ctx, none, 2, true); return err },
		"Compactor.Compact": func() error { _, err := l.compactor.Compact(ctx, none, 2, true); return err },
		"Pipeline.Submit":   func() error { return l.pipeline.Submit(ctx, none, write.NewTxnCommand(put("k", "w"))) },
		"Pipeline.Txn":      func() error { _, err := l.pipeline.Txn(ctx, none, put("k", "w")); return err },
		"Lessor.Grant":      func() error { _, err := l.lessor.Grant(ctx, none, 8, 60); return err },
		"Lessor.Revoke":     func() error { _, err := l.lessor.Revoke(ctx, none, 7); return err },
		"Lessor.KeepAlive":  func() error { _, err := l.lessor.KeepAlive(ctx, none, 7); return err },
		"Lessor.TimeToLive": func() error { _, err := l.lessor.TimeToLive(ctx, none, 7, true); return err },
		"Lessor.IDs":        func() error { _, err := l.lessor.IDs(ctx, none); return err },
		"Alarms.List":       func() error { _, err := b.Alarms.List(ctx, none); return err },
		"Alarms.Raise": func() error {
			_, err := b.Alarms.Raise(ctx, none, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt})
			return err
		},
		"Alarms.Disarm": func() error {
			_, err := b.Alarms.Disarm(ctx, none, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt})
			return err
		},
		"Exporter.HashKV": func() error {
			_, err := b.Exporter.HashKV(ctx, none, 0, func(*coder.Record) ([]byte, error) { return nil, nil })
			return err
		},
		"Exporter.Hash":         func() error { _, err := b.Exporter.Hash(ctx, none); return err },
		"Space.Defragment":      func() error { return b.Space.Defragment(ctx, none) },
		"Exporter.OpenSnapshot": func() error { _, err := b.Exporter.OpenSnapshot(ctx, none); return err },
		"Store.Change":          func() error { _, err := b.Auth.Change(ctx, none, setUser("me", "x")); return err },
		"Store.IssueToken": func() error {
			_, _, err := b.Auth.IssueToken(ctx, none, "abc",
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
	for _, part := range []any{b, b.Reader, b.Exporter, b.Auth, b.Alarms, b.Space, l.lessor, l.compactor,
		l.pipeline} {
		of := reflect.TypeOf(part)
		for m := range of.Methods() {
			name := of.Elem().Name() + "." + m.Name
			for i := range m.Type.NumIn() {
				if m.Type.In(i) == permit && calls[name] == nil {
					t.Errorf("%s takes a permit and is not tested", name)
				}
			}
		}
	}
}
