package snapshot

import (
	"bytes"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// CopyOptions say what to copy of a server.
type CopyOptions struct {
	// Prefix is what all keys begin with. Some servers list prefixes only. The
	// server is asked whether there are others, which is an error.
	Prefix   string
	Progress func(Progress) // as in LoadOptions
}

// copyPage is how many keys are asked for at a time.
const copyPage = 500

// Copy fills store, which must be empty, with the keys that a server has at one revision,
// for servers that make no snapshots. Values, mod and create revisions, versions and
// leases are as the server tells them (kine tells none: 1 stands for it, or 2 if the key was changed since it was created); history is not there, the revision counts as the
// compact revision. A lease of which the server tells nothing has its id as its life, in seconds,
// which is what kine means by it. Errors: backend.ErrNotEmpty, the server's.
func Copy(ctx context.Context, from *clientv3.Client, store sqlstore.Store, o CopyOptions) (*Loaded, error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	end := clientv3.GetPrefixRangeEnd(o.Prefix)
	page, err := from.Get(ctx, o.Prefix, clientv3.WithRange(end), clientv3.WithLimit(copyPage))
	if err != nil {
		return nil, fmt.Errorf("reading the first keys: %w", err)
	}
	c := &copying{from: from, revision: page.Header.Revision, end: end, subs: make(map[int64]int32), leases: make(map[int64]bool)}
	if c.revision < 1 {
		return nil, fmt.Errorf("the server says that it is at revision %d", c.revision)
	}
	if err := c.outside(ctx, o.Prefix); err != nil {
		return nil, err
	}
	if c.restore, err = backend.BeginRestore(ctx, store, c.revision); err != nil {
		return nil, err
	}
	for {
		if err := c.put(ctx, page); err != nil {
			return nil, err
		}
		o.Progress(Progress{"copying", c.copied, int(page.Count) + c.before})
		if !page.More {
			break
		}
		page, err = from.Get(ctx, string(c.last)+"\x00", clientv3.WithRange(end), clientv3.WithLimit(copyPage), clientv3.WithRev(c.revision))
		if err != nil {
			return nil, fmt.Errorf("reading the keys behind %.100q: %w", c.last, err)
		}
	}
	if err := c.grant(ctx); err != nil {
		return nil, err
	}
	l := &Loaded{Versions: c.copied, CompactRevision: c.revision, Leases: len(c.leases)}
	l.Keys, l.Revision, err = c.restore.Finish(ctx, c.revision, nil)
	return l, err
}

// copying is one Copy.
type copying struct {
	from     *clientv3.Client
	restore  *backend.Restore
	revision int64
	end      string

	last   []byte
	copied int
	before int             // copied when the page at hand was asked for
	subs   map[int64]int32 // how many keys of a revision there were
	leases map[int64]bool
}

// ownKeys begin with this: kube-apiserver's mark of its last compaction, which it makes
// anew, and what kine has instead of it.
var ownKeys = []byte("compact_rev_key")

// outside returns an error if there are keys that do not begin with the prefix, of those
// that begin with a printable character: kine looks no further.
func (c *copying) outside(ctx context.Context, prefix string) error {
	for _, r := range [][2]string{{"!", prefix}, {c.end, "~"}} {
		if r[0] >= r[1] {
			continue
		}
		found, err := c.from.Get(ctx, r[0], clientv3.WithRange(r[1]), clientv3.WithKeysOnly(), clientv3.WithRev(c.revision), clientv3.WithLimit(4))
		if err != nil {
			return fmt.Errorf("looking for other keys: %w", err)
		}
		for _, kv := range found.Kvs {
			if !bytes.HasPrefix(kv.Key, ownKeys) {
				return fmt.Errorf("not all keys of the server begin with %q, %.100q does not: --prefix names what all begin with", prefix, kv.Key)
			}
		}
	}
	return nil
}

func (c *copying) put(ctx context.Context, page *clientv3.GetResponse) error {
	c.before = c.copied
	for _, kv := range page.Kvs {
		if bytes.Compare(kv.Key, c.last) <= 0 {
			continue // where a collation takes a key with a zero byte for the key
		}
		c.last = kv.Key
		if kv.ModRevision < 1 || kv.ModRevision > c.revision || kv.CreateRevision < 1 || kv.CreateRevision > kv.ModRevision {
			return fmt.Errorf("the key %.100q, of revision %d, says that it is of %d, created at %d", kv.Key, c.revision, kv.ModRevision, kv.CreateRevision)
		}
		least := int64(1)
		if kv.CreateRevision < kv.ModRevision {
			least = 2
		}
		err := c.restore.Put(ctx, &coder.Record{
			Key: kv.Key, Value: kv.Value, Lease: kv.Lease, Sub: c.subs[kv.ModRevision],
			CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: max(kv.Version, least),
		})
		if err != nil {
			return err
		}
		c.subs[kv.ModRevision]++
		if kv.Lease != 0 {
			c.leases[kv.Lease] = true
		}
		c.copied++
	}
	if page.More && c.copied == c.before {
		return fmt.Errorf("the server lists no more keys behind %.100q, and says that there are", c.last)
	}
	return nil
}

// grant makes the leases that keys have.
func (c *copying) grant(ctx context.Context) error {
	for id := range c.leases {
		ttl := id
		if l, err := c.from.TimeToLive(ctx, clientv3.LeaseID(id)); err == nil && l.GrantedTTL > 0 {
			ttl = l.GrantedTTL
		}
		if ttl < 1 || ttl > backend.MaxLeaseTTL {
			delete(c.leases, id)
			continue
		}
		if err := c.restore.Lease(ctx, coder.Lease{ID: id, TTL: ttl}); err != nil {
			return err
		}
	}
	return nil
}
