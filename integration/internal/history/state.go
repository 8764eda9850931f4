package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

// Settle runs Round and CheckStore with the account that c reads. It repeats both as
// long as the store's revision changes, and until ctx ends if the store does not answer in time.
func (v *Verifier) Settle(ctx context.Context, c *clientv3.Client, rnd *rand.Rand, oldest int64,
	samples int) ([]string, error) {
	var found []string
	for {
		account, err := Account(ctx, c, v.Revision()+1)
		if late(ctx, err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, v.Round(account)...)
		wrong, err := v.CheckStore(ctx, c, rnd, oldest, samples)
		if !errors.Is(err, ErrMoved) && !late(ctx, err) {
			return append(found, wrong...), err
		}
	}
}

// Code returns the gRPC code of an error of etcd's client, which wraps it in etcd's errors and the context's.
func Code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	if code := status.FromContextError(err).Code(); code != codes.Unknown {
		return code
	}
	return status.Code(err)
}

// late reports whether err is that of a store without an answer, which may have one before
// ctx ends. It takes a moment if so.
func late(ctx context.Context, err error) bool {
	if code := Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// ErrMoved is returned by CheckStore if the store's revision changed during the check.
var ErrMoved = errors.New("the store has moved on")

// CheckStore verifies that what the store answers now is what the account says:
// the current state, the leases, and the states at samples random revisions, none
// older than oldest. It must be called after Round, without load.
// It returns ErrMoved if the store's revision has changed since, for example because a
// request with an unknown outcome took effect late. Then another Round is needed.
func (v *Verifier) CheckStore(ctx context.Context, c *clientv3.Client, rnd *rand.Rand, oldest int64,
	samples int) ([]string, error) {
	v.violations = nil
	all := Range{Key: "\x00", End: "\x00"}
	revisions := []int64{0}
	for range samples {
		revisions = append(revisions, oldest+rnd.Int64N(v.model.Revision()-oldest+1))
	}
	for _, rev := range revisions {
		r, err := c.Get(ctx, all.Key, clientv3.WithRange(all.End), clientv3.WithRev(rev))
		if err != nil {
			return nil, fmt.Errorf("read the state at revision %d: %w", rev, err)
		}
		switch {
		case r.Header.Revision > v.model.Revision():
			return nil, ErrMoved
		case r.Header.Revision < v.model.Revision():
			v.fail("the store is at revision %d, the account ended at %d", r.Header.Revision, v.model.Revision())
		}
		kvs := make([]KV, len(r.Kvs))
		for i, kv := range r.Kvs {
			kvs[i] = model.FromProto(kv)
		}
		at := rev
		if rev == 0 {
			at = v.model.Revision()
		}
		if want := v.model.List(all, at); !slices.Equal(want, kvs) {
			v.fail("the state at revision %d has %d keys where the account has %d; %s", at, len(kvs), len(want),
				firstDifference(kvs, want))
		}
	}
	if err := v.checkLeases(ctx, c); err != nil {
		return nil, err
	}
	// The leases were read one after the other.
	r, err := c.Get(ctx, "head")
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the current revision: %w", err)
	case r.Header.Revision > v.model.Revision():
		return nil, ErrMoved
	}
	return v.violations, nil
}

func firstDifference(got, want []KV) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("missing: %v", want[i])
		case i >= len(want):
			return fmt.Sprintf("too many: %v", got[i])
		case got[i] != want[i]:
			return fmt.Sprintf("%v rather than %v", got[i], want[i])
		}
	}
	return "equal"
}

// checkLeases verifies which leases there are and what they hold. Their TTLs
// must be so long that none expires during the test.
func (v *Verifier) checkLeases(ctx context.Context, c *clientv3.Client) error {
	list, err := c.Leases(ctx)
	if err != nil {
		return fmt.Errorf("list the leases: %w", err)
	}
	present := make(map[int64]bool)
	for _, l := range list.Leases {
		id := int64(l.ID)
		present[id] = true
		switch lease := v.leases[id]; {
		case lease == nil:
			v.fail("lease %x is from nowhere", id)
		case lease.Revoked:
			v.fail("lease %x was revoked and is there", id)
		}
	}
	for id, lease := range v.leases {
		switch {
		case present[id]:
			if err := v.checkHeld(ctx, c, id); err != nil {
				return err
			}
		case lease.Granted && !lease.Revoking:
			v.fail("lease %x was granted and is gone", id)
		case len(v.model.Attached(id)) > 0:
			v.fail("lease %x is gone and its keys are not: %v", id, v.model.Attached(id))
		}
	}
	return nil
}

func (v *Verifier) checkHeld(ctx context.Context, c *clientv3.Client, id int64) error {
	r, err := c.TimeToLive(ctx, clientv3.LeaseID(id), clientv3.WithAttachedKeys())
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("time to live of lease %x: %w", id, err)
	}
	if err != nil || r.TTL <= 0 {
		v.fail("lease %x is listed, but has no time to live", id)
		return nil
	}
	held := make([]string, len(r.Keys))
	for i, k := range r.Keys {
		held[i] = string(k)
	}
	slices.Sort(held)
	if want := v.model.Attached(id); !slices.Equal(want, held) {
		v.fail("lease %x holds %q rather than %q", id, held, want)
	}
	return nil
}

// LastIn returns the newest revision that has events in r, 0 if none has.
func (v *Verifier) LastIn(r Range) int64 {
	for rev := v.model.Revision(); rev > v.model.Base(); rev-- {
		if len(v.model.Events(r, rev)) > 0 {
			return rev
		}
	}
	return 0
}

// CheckWatch verifies what a watch of r from revision start saw, up to its
// newest revision and at least up to atLeast; prevKV says that it asked for the
// previous versions, and wanted which events. It is to be called after Round.
func (v *Verifier) CheckWatch(r Range, start, atLeast int64, prevKV bool, s *Stream,
	wanted ...func(Event) bool) []string {
	v.violations = nil
	end := max(s.Last(), atLeast)
	if end > v.model.Revision() {
		v.fail("a watch saw revision %d, the account ends at %d", end, v.model.Revision())
		return v.violations
	}
	var want []Revision
	for rev := start; rev <= end; rev++ {
		events := v.model.Events(r, rev)
		for i := range events {
			if !prevKV {
				events[i].Prev = nil
			}
		}
		for _, f := range wanted {
			events = slices.DeleteFunc(events, func(e Event) bool { return !f(e) })
		}
		if len(events) > 0 {
			want = append(want, Revision{Number: rev, Events: events})
		}
	}
	for i := range max(len(want), len(s.Revisions)) {
		switch {
		case i >= len(want):
			v.fail("watch: revision %d once more: %v", s.Revisions[i].Number, s.Revisions[i].Events)
		case i >= len(s.Revisions):
			v.fail("watch: revision %d is missing, as are the %d behind it", want[i].Number, len(want)-i-1)
		case want[i].Number != s.Revisions[i].Number:
			v.fail("watch: revision %d where %d is next", s.Revisions[i].Number, want[i].Number)
		case !slices.EqualFunc(want[i].Events, s.Revisions[i].Events, sameEvent):
			v.fail("watch: revision %d has events\n  %v\n  rather than\n  %v", want[i].Number, s.Revisions[i].Events,
				want[i].Events)
		default:
			continue
		}
		break // everything after the first difference differs too
	}
	return v.violations
}
