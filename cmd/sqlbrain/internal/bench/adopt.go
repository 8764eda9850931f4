package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// errStrangeObjects: the objects to adopt are not those of a run with this seed.
var errStrangeObjects = errors.New("these are not the objects of a run with this seed and value size")

// adopt takes over the objects below the prefix, and checks that each is one that
// a run with this seed writes, with a value it writes.
func (r *runner) adopt(ctx context.Context) error {
	p := r.begin("adopt", 0)
	defer r.end(p)
	w := r.worker(p, 0)
	prefix := r.model.gen.prefix + "/"
	end, from, rev := clientv3.GetPrefixRangeEnd(prefix), prefix, int64(0)
	found := map[string]version{}
	writes := map[string]int{}
	for more := true; more; {
		page, err := w.read(ctx, "list page", from, clientv3.WithRange(end), clientv3.WithLimit(int64(r.cfg.PageSize)), clientv3.WithRev(rev))
		if err != nil {
			return fmt.Errorf("read what is to be adopted: %w", err)
		}
		if rev == 0 {
			rev = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			_, n, ok := writeOf(kv.Value)
			if !ok {
				return fmt.Errorf("%w: %s", errStrangeObjects, kv.Key)
			}
			found[string(kv.Key)], writes[string(kv.Key)] = version{state: r.model.stateOf(kv)}, n
			from = string(kv.Key) + "\x00"
		}
		more = page.More
	}
	if len(found) == 0 {
		return fmt.Errorf("adopt: %w: nothing is kept below %s", errStrangeObjects, prefix)
	}
	// Some of the objects that were created may have been deleted since.
	for most := 10*len(found) + 1000; len(found) > 0; {
		if r.model.len() > most {
			return fmt.Errorf("%w: %d below %s", errStrangeObjects, len(found), prefix)
		}
		o := r.model.add(-1)
		v, live := found[o.key]
		if !live {
			continue
		}
		n := writes[o.key]
		if hashOf(r.model.gen.value(o.index, o.kind, n)) != v.hash {
			return fmt.Errorf("%w: the value of %s is another", errStrangeObjects, o.key)
		}
		o.history = []version{v}
		o.writes, o.adopted = n+1, n+1
		delete(found, o.key)
	}
	return nil
}

// writeOf returns the object that a value belongs to, and the number of its write, from 0.
func writeOf(value []byte) (object, write int, ok bool) {
	rest, ok := bytes.CutPrefix(value, []byte(valueMagic))
	if !ok || len(rest) < 12 {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint64(rest)), int(binary.BigEndian.Uint32(rest[8:])), true
}
