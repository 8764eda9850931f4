package replica

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

// TestZeroPermitRefusesEveryEntryPoint calls every method that takes a permit with none.
// Nothing is read, and nothing is written.
func TestZeroPermitRefusesEveryEntryPoint(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustGrant(t, b, 2, 3600)
	mustTxn(t, b, putLeased("k", 2)) // revision 2
	mustTxn(t, b, put("k2", "v"))
	before, l := b.seen.Token(), b.leading.Load()
	permit := reflect.TypeFor[auth.Permit]()
	known := map[reflect.Type]any{
		reflect.TypeFor[context.Context](): t.Context(),
		reflect.TypeFor[int64]():           int64(2), // a lease, and a revision
		reflect.TypeFor[*mvcc.Txn]():       put("k", "w"),
		reflect.TypeFor[write.Command]():   write.NewTxnCommand(put("k", "w")),
		permit:                             auth.Permit{},
	}
	argument := func(method string, of reflect.Type) reflect.Value {
		if value, ok := known[of]; ok {
			return reflect.ValueOf(value)
		}
		switch of.Kind() {
		case reflect.Pointer:
			return reflect.New(of.Elem())
		case reflect.Func:
			return reflect.MakeFunc(of, func([]reflect.Value) (results []reflect.Value) {
				t.Errorf("%s calls a function without a permit", method)
				for i := range of.NumOut() {
					results = append(results, reflect.Zero(of.Out(i)))
				}
				return results
			})
		}
		return reflect.Zero(of)
	}
	called := 0
	for _, part := range []any{b, b.Reader, b.Exporter, b.Auth, b.Alarms, b.Space, l.lessor, l.compactor, l.pipeline} {
		for m := range reflect.TypeOf(part).Methods() {
			call, takes := reflect.ValueOf(part).MethodByName(m.Name), false
			var arguments []reflect.Value
			for i := range call.Type().NumIn() {
				takes = takes || call.Type().In(i) == permit
				arguments = append(arguments, argument(m.Name, call.Type().In(i)))
			}
			if !takes {
				continue
			}
			called++
			results := call.Call(arguments)
			if err, _ := results[len(results)-1].Interface().(error); !errors.Is(err, auth.ErrNoPermit) {
				t.Errorf("%T.%s: %v", part, m.Name, err)
			}
		}
	}
	if called < 30 {
		t.Errorf("%d methods take a permit", called)
	}
	read := &mvcc.Txn{Then: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: all()}}}}
	if _, err := b.Txn(t.Context(), auth.Permit{}, read, false); !errors.Is(err, auth.ErrNoPermit) {
		t.Errorf("a transaction that reads: %v", err)
	}
	if after := b.seen.Token(); after != before {
		t.Errorf("the fence row was %+v, and is %+v", before, after)
	}
}
