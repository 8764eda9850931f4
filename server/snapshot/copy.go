package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// copyPage is the number of keys requested per page.
const copyPage = 500

// Copy fills store, which must be empty unless o.Replace is set, with the keys of a server at one revision. It is
// for servers that cannot make snapshots. All keys must begin with prefix: some servers only list prefixes. Values, mod
// and create revisions, versions and leases are those that the server reports. kine reports no versions: Copy writes 1,
// or 2 if the key was changed after its creation. History is not copied; the copied revision becomes the compact
// revision, or the one to which it is raised. If the server reports no TTL for a lease, the lease id is its TTL in
// seconds, as in kine. Errors: repair.ErrNotEmpty, those of the server.
func Copy(ctx context.Context, from *clientv3.Client, store sqlstore.Store, prefix string,
	o LoadOptions) (*Loaded, error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	previous, err := repair.FindPrevious(ctx, store, o.Replace)
	if err != nil {
		return nil, err
	}
	end := clientv3.GetPrefixRangeEnd(prefix)
	page, err := from.Get(ctx, prefix, clientv3.WithRange(end), clientv3.WithLimit(copyPage))
	if err != nil {
		return nil, fmt.Errorf("reading the first keys: %w", err)
	}
	c := &copying{from: from, revision: page.Header.Revision, end: end, subs: make(map[int64]int32),
		leases: make(map[int64]bool)}
	if c.revision < 1 {
		return nil, fmt.Errorf("the server reported revision %d", c.revision)
	}
	if err := c.outside(ctx, prefix); err != nil {
		return nil, err
	}
	raised, err := o.raise(previous, c.revision)
	if err != nil {
		return nil, err
	}
	if c.restore, err = previous.Begin(ctx, store, raised); err != nil {
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
		page, err = from.Get(ctx, string(c.last)+"\x00", clientv3.WithRange(end), clientv3.WithLimit(copyPage),
			clientv3.WithRev(c.revision))
		if err != nil {
			return nil, fmt.Errorf("reading the keys after %.100q: %w", c.last, err)
		}
	}
	if err := c.grant(ctx); err != nil {
		return nil, err
	}
	l := &Loaded{Versions: c.copied, CompactRevision: raised, Replaced: previous.Revision, Leases: len(c.leases)}
	l.Keys, l.Revision, err = c.restore.Finish(ctx, raised, nil)
	return l, err
}

// copying is one Copy.
type copying struct {
	from     *clientv3.Client
	restore  *repair.Restore
	revision int64
	end      string

	last   []byte
	copied int
	before int             // copied when the current page was requested
	subs   map[int64]int32 // number of keys copied per revision
	leases map[int64]bool
}

// ownKeys is the prefix of keys that are not copied: kube-apiserver's mark of its last
// compaction, which it writes again, and kine's equivalent.
var ownKeys = []byte("compact_rev_key")

// outside returns an error if keys exist that do not begin with the prefix. It checks
// only keys that begin with a printable character, because kine lists no others.
func (c *copying) outside(ctx context.Context, prefix string) error {
	for _, r := range [][2]string{{"!", prefix}, {c.end, "~"}} {
		if r[0] >= r[1] {
			continue
		}
		found, err := c.from.Get(ctx, r[0], clientv3.WithRange(r[1]), clientv3.WithKeysOnly(), clientv3.WithRev(c.revision),
			clientv3.WithLimit(4))
		if err != nil {
			return fmt.Errorf("looking for other keys: %w", err)
		}
		for _, kv := range found.Kvs {
			if !bytes.HasPrefix(kv.Key, ownKeys) {
				return fmt.Errorf("not all keys of the server begin with %q, %.100q does not: --prefix names what all begin with",
					prefix, kv.Key)
			}
		}
	}
	return nil
}

func (c *copying) put(ctx context.Context, page *clientv3.GetResponse) error {
	c.before = c.copied
	for _, kv := range page.Kvs {
		if bytes.Compare(kv.Key, c.last) <= 0 {
			continue // a collation may treat a key with a zero byte as equal to the key without it
		}
		c.last = kv.Key
		if kv.ModRevision < 1 || kv.ModRevision > c.revision || kv.CreateRevision < 1 || kv.CreateRevision > kv.ModRevision {
			return fmt.Errorf("the server returned key %.100q at revision %d with mod revision %d and create revision %d",
				kv.Key, c.revision, kv.ModRevision, kv.CreateRevision)
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
		return fmt.Errorf("the server reported more keys after %.100q but returned none", c.last)
	}
	return nil
}

// Unsupported reports whether a server refuses a call that it does not have. kine's error has no code.
func Unsupported(err error) bool {
	return status.Code(err) == codes.Unimplemented || strings.Contains(err.Error(), "not supported")
}

// grant creates the leases that keys are attached to.
func (c *copying) grant(ctx context.Context) error {
	for id := range c.leases {
		ttl := id
		switch l, err := c.from.TimeToLive(ctx, clientv3.LeaseID(id)); {
		case err != nil && !Unsupported(err):
			return fmt.Errorf("reading the TTL of the lease %x: %w", uint64(id), err) // the client has repeated it
		case err == nil && l.GrantedTTL > 0:
			ttl = l.GrantedTTL
		}
		if ttl < 1 || ttl > lease.MaxTTL {
			delete(c.leases, id)
			continue
		}
		if err := c.restore.Lease(ctx, coder.Lease{ID: id, TTL: ttl}); err != nil {
			return err
		}
	}
	return nil
}
