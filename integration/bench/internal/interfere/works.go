package interfere

import (
	"context"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

// work is something that one client, or a server, does while others put and get.
type work struct {
	name    string
	prepare func(context.Context, *background) error // not measured
	do      func(context.Context, *background) error
	again   bool // it can be repeated
	joins   bool // it is for systems that can have a further member
}

// works are done in this order: the first ones need the history, which compaction removes.
var works = []work{
	{name: none, do: func(ctx context.Context, b *background) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(b.Quiet):
			return nil
		}
	}},
	{name: "list of all keys at an old revision", again: true, do: func(ctx context.Context, b *background) error {
		answer, err := b.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(b.loaded))
		if err == nil && len(answer.Kvs) != b.Keys {
			err = fmt.Errorf("%d keys listed of %d", len(answer.Kvs), b.Keys)
		}
		return err
	}},
	{name: "watch that catches up all versions", again: true, do: catchUp},
	{name: "snapshot", again: true, do: func(ctx context.Context, b *background) error {
		return system.Snapshot(ctx, b.Client, io.Discard)
	}},
	{name: "backup into a file", again: true, do: func(ctx context.Context, b *background) error {
		return b.server.Backup(ctx, b.Client)
	}},
	{name: "follower that joins, and leaves", joins: true, do: func(ctx context.Context, b *background) error {
		return b.server.Join(ctx)
	}},
	{name: "lease with all keys revoked", prepare: lease, do: func(ctx context.Context, b *background) error {
		_, err := b.Revoke(ctx, b.leased)
		return err
	}},
	{name: "range delete of half of the keys", do: func(ctx context.Context, b *background) error {
		_, err := b.Delete(ctx, key(0), clientv3.WithRange(key(b.Keys/2)))
		return err
	}},
	{name: "compaction of all versions", do: func(ctx context.Context, b *background) error {
		now, err := b.Get(ctx, prefix)
		if err != nil {
			return err
		}
		_, err = b.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
		return err
	}},
	{name: "defragmentation", do: func(ctx context.Context, b *background) error {
		_, err := b.Defragment(ctx, b.Endpoints()[0])
		return err
	}},
}

const prefix = "/work/"

func key(n int) string { return fmt.Sprintf("%s%08d", prefix, n) }

// background is the client that works, and what it knows of its keys.
type background struct {
	*clientv3.Client
	Options
	server *system.Running
	before int64 // the revision before load
	loaded int64 // when each key had its first version
	leased clientv3.LeaseID
}

// load writes each version of each key.
func (b *background) load(ctx context.Context) error {
	for version := range b.Versions {
		at, err := b.put(ctx, prefix)
		if err != nil {
			return err
		}
		if version == 0 {
			b.loaded = at
		}
	}
	return nil
}

// lease attaches as many keys to a lease.
func lease(ctx context.Context, b *background) error {
	granted, err := b.Grant(ctx, 3600)
	if err != nil {
		return err
	}
	b.leased = granted.ID
	_, err = b.put(ctx, "/leased/", clientv3.WithLease(granted.ID))
	return err
}

// put writes a version of each key, and returns the revision of the last one.
func (b *background) put(ctx context.Context, under string, o ...clientv3.OpOption) (revision int64, err error) {
	const atOnce = 128 // etcd's limit for a transaction
	value := string(make([]byte, b.ValueSize))
	for first := 0; first < b.Keys; first += atOnce {
		var ops []clientv3.Op
		for i := first; i < min(first+atOnce, b.Keys); i++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%08d", under, i), value, o...))
		}
		answer, err := b.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return 0, err
		}
		revision = answer.Header.Revision
		if b.before == 0 {
			b.before = revision - 1
		}
	}
	return revision, nil
}

// catchUp watches from before load until each version has come.
func catchUp(ctx context.Context, b *background) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	for answer := range b.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(b.before+1)) {
		if err := answer.Err(); err != nil {
			return err
		}
		if n += len(answer.Events); n >= b.Keys*b.Versions {
			return nil
		}
	}
	return fmt.Errorf("the watch ended after %d of %d events", n, b.Keys*b.Versions)
}
