package compat

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

func TestRange(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	testClaims(t, nil, []claim{
		{"an empty key is refused", func(c *checker) {
			c.refused("KV/Range", &pb.RangeRequest{}, codes.InvalidArgument, "etcdserver: key is not provided")
			c.refused("KV/RangeStream", &pb.RangeRequest{RangeEnd: b("x")}, codes.InvalidArgument,
				"etcdserver: key is not provided")
		}},
		{"an unknown sort order or target is refused", func(c *checker) {
			c.refused("KV/Range", &pb.RangeRequest{Key: b("a"), SortOrder: 3}, codes.InvalidArgument,
				"etcdserver: invalid sort option")
			c.refused("KV/Range", &pb.RangeRequest{Key: b("a"), SortTarget: 5}, codes.InvalidArgument,
				"etcdserver: invalid sort option")
			c.refused("KV/Range", &pb.RangeRequest{Key: b("a"), SortTarget: -1}, codes.InvalidArgument,
				"etcdserver: invalid sort option")
		}},
		{"a future revision is refused", func(c *checker) {
			for _, method := range []string{"KV/Range", "KV/RangeStream"} {
				c.refused(method, &pb.RangeRequest{Key: b("a"), Revision: c.revision + 1}, codes.OutOfRange,
					"etcdserver: mvcc: required revision is a future revision")
			}
		}},
		{"a compacted revision is refused, the compact revision itself is not", func(c *checker) {
			c.put("a", "1")
			c.put("a", "2")
			at := c.revision
			c.put("a", "3")
			c.compact(at, true)
			for _, method := range []string{"KV/Range", "KV/RangeStream"} {
				c.refused(method, &pb.RangeRequest{Key: b("a"), Revision: at - 1}, codes.OutOfRange,
					"etcdserver: mvcc: required revision has been compacted")
			}
			r := c.rng(&pb.RangeRequest{Key: b("a"), Revision: at})
			c.holds(len(r.Kvs) == 1 && string(r.Kvs[0].Value) == "2", "reading at the compact revision works: %v", r)
		}},
		{"a negative revision means the current one", func(c *checker) {
			c.put("a", "1")
			r := c.rng(&pb.RangeRequest{Key: b("a"), Revision: -5})
			c.holds(len(r.Kvs) == 1, "%v", r)
		}},
		{"an inverted range is empty", func(c *checker) {
			c.put("a", "1")
			r := c.rng(&pb.RangeRequest{Key: b("b"), RangeEnd: b("a")})
			c.holds(r.Header != nil && r.Count == 0, "%v", r)
			c.rng(&pb.RangeRequest{Key: b("a"), RangeEnd: b("a")})
			c.kv("RangeStream", &pb.RangeRequest{Key: b("b"), RangeEnd: b("a")})
		}},
		{"header.revision is the current revision", func(c *checker) {
			c.put("a", "1")
			old := c.revision
			c.put("a", "2")
			r := c.rng(&pb.RangeRequest{Key: b("a"), Revision: old})
			c.holds(r.Header.GetRevision() == c.revision, "%v", r)
			c.kv("RangeStream", &pb.RangeRequest{Key: b("a"), Revision: old})
		}},
		{"count ignores the limit and the revision filters", func(c *checker) {
			for i := range 9 {
				c.put(fmt.Sprint("k", i), "")
			}
			for _, q := range []*pb.RangeRequest{{Limit: 2}, {MinModRevision: c.revision - 2},
				{MaxCreateRevision: c.revision - 5, Limit: 3}, {CountOnly: true}, {CountOnly: true, Limit: 2}} {
				q.Key, q.RangeEnd = b("k"), b("l")
				r := c.rng(q)
				c.holds(r.Count == 9, "%v: count %d", q, r.Count)
			}
		}},
		{"each revision filter alone, and each with each", func(c *checker) {
			for i := range 12 {
				c.put(fmt.Sprint("k", i%5), fmt.Sprint(i))
			}
			low, high := c.revision-8, c.revision-3
			for n := range 1 << 4 {
				q := &pb.RangeRequest{Key: b("k"), RangeEnd: b("l")}
				for i, bound := range []struct {
					field *int64
					at    int64
				}{{&q.MinModRevision, low}, {&q.MaxModRevision, high}, {&q.MinCreateRevision, low - 2},
					{&q.MaxCreateRevision, low}} {
					if n&(1<<i) != 0 {
						*bound.field = bound.at
					}
				}
				c.rng(q)
				q.CountOnly = true
				c.rng(q)
			}
		}},
		{"more is judged after the filters", func(c *checker) {
			for i := range 6 {
				c.put(fmt.Sprint("k", i), "")
			}
			for limit := range int64(5) {
				r := c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), MinModRevision: c.revision - 2, Limit: limit})
				c.holds(r.More == (limit > 0 && limit < 3), "limit %d: %v", limit, r)
			}
			r := c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), Limit: 6})
			c.holds(!r.More, "a limit just reached: %v", r)
		}},
		{"sorting and filtering happen before the limit", func(c *checker) {
			for i := range 5 {
				c.put(fmt.Sprint("k", i), fmt.Sprint(5-i))
			}
			r := c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), SortOrder: pb.RangeRequest_DESCEND, Limit: 2})
			c.holds(keysOf(r) == "k4 k3", "%s", keysOf(r))
			r = c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), SortOrder: pb.RangeRequest_ASCEND,
				SortTarget: pb.RangeRequest_VALUE, Limit: 2})
			c.holds(keysOf(r) == "k4 k3", "%s", keysOf(r))
			r = c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), MinCreateRevision: c.revision - 1, Limit: 1})
			c.holds(keysOf(r) == "k3", "%s", keysOf(r))
		}},
		{"a target other than the key without an order sorts ascending, the first keys only", func(c *checker) {
			for i := range 5 {
				c.put(fmt.Sprint("k", i), fmt.Sprint(5-i))
			}
			r := c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), SortTarget: pb.RangeRequest_VALUE})
			c.holds(keysOf(r) == "k4 k3 k2 k1 k0", "%s", keysOf(r))
			// The limit comes first here, unlike with an order.
			r = c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), SortTarget: pb.RangeRequest_VALUE, Limit: 2})
			c.holds(keysOf(r) == "k2 k1", "%s", keysOf(r))
		}},
		{"every order of every target, equal ones too", func(c *checker) {
			for i := range 30 {
				c.put(fmt.Sprintf("k%02d", i*7%30), fmt.Sprint(i%4))
				if i%3 == 0 {
					c.put(fmt.Sprintf("k%02d", i), "again")
				}
			}
			for target := range pb.RangeRequest_SortTarget_name {
				for order := range pb.RangeRequest_SortOrder_name {
					for _, limit := range []int64{0, 1, 7, 100} {
						q := &pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), SortTarget: pb.RangeRequest_SortTarget(target),
							SortOrder: pb.RangeRequest_SortOrder(order), Limit: limit}
						c.rng(q)
						q.KeysOnly = true
						c.rng(q)
					}
				}
			}
		}},
		{"an end of one zero byte means every key from the key on", func(c *checker) {
			for _, k := range []string{"\x00", "a", "a\x00", "b", "\xff", "\xff\xff"} {
				c.put(k, "")
			}
			r := c.rng(&pb.RangeRequest{Key: b("a\x00"), RangeEnd: b("\x00")})
			c.holds(r.Count == 4, "%v", r)
			r = c.rng(&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00")})
			c.holds(r.Count == 6, "%v", r)
		}},
		{"keys_only strips values after sorting by value", func(c *checker) {
			c.put("k1", "b")
			c.put("k2", "a")
			r := c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), KeysOnly: true, SortOrder: pb.RangeRequest_ASCEND,
				SortTarget: pb.RangeRequest_VALUE})
			c.holds(keysOf(r) == "k2 k1" && r.Kvs[0].Value == nil, "%v", r)
			c.grant(1, 3600)
			c.kv("Put", &pb.PutRequest{Key: b("k3"), Lease: 1})
			for target := range pb.RangeRequest_SortTarget_name { // the lease goes as well, or does not
				for _, end := range []string{"", "l"} {
					c.rng(&pb.RangeRequest{Key: b("k3"), RangeEnd: b(end), KeysOnly: true,
						SortTarget: pb.RangeRequest_SortTarget(target)})
				}
			}
		}},
		{"the count of a page from a continuation key counts from there", func(c *checker) {
			for i := range 7 {
				c.put(fmt.Sprint("k", i), "")
			}
			rev := c.revision
			c.put("k9", "")
			c.del("k1", "")
			key := "k"
			for left := int64(7); left > 0; left -= 3 {
				r := c.rng(&pb.RangeRequest{Key: b(key), RangeEnd: b("l"), Limit: 3, Revision: rev})
				c.holds(r.Count == left && r.More == (left > 3), "from %q: %v", key, r)
				if len(r.Kvs) == 0 {
					return
				}
				key = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
			}
		}},
		{"hostile keys keep their order", func(c *checker) {
			for _, k := range hostile {
				c.put(k, k)
			}
			for _, k := range hostile {
				for _, end := range hostile {
					c.rng(&pb.RangeRequest{Key: b(k), RangeEnd: b(end)})
				}
			}
		}},
		{"a range stream tells header, more and count on its last chunk, and keys once", func(c *checker) {
			for i := range 40 {
				c.put(fmt.Sprintf("k%02d", i), string(make([]byte, 100<<10)))
			}
			a := c.kv("RangeStream", &pb.RangeRequest{Key: b("k"), RangeEnd: b("l")})
			c.holds(len(a.messages) > 1, "%d chunks", len(a.messages))
			for _, q := range []*pb.RangeRequest{{Limit: 7}, {Limit: 40}, {KeysOnly: true}, {CountOnly: true},
				{CountOnly: true, Limit: 3}, {Limit: -1}, {Revision: c.revision - 9}, {SortOrder: pb.RangeRequest_ASCEND},
				{Serializable: true}} {
				q.Key, q.RangeEnd = b("k"), b("l")
				c.kv("RangeStream", q)
			}
		}},
		{"a range stream with an unknown sort is refused", func(c *checker) {
			for _, n := range []int32{-1, 3, 5} {
				c.kv("RangeStream", &pb.RangeRequest{Key: b("a"), SortTarget: pb.RangeRequest_SortTarget(n),
					SortOrder: pb.RangeRequest_ASCEND})
				c.kv("RangeStream", &pb.RangeRequest{Key: b("a"), SortOrder: pb.RangeRequest_SortOrder(n)})
			}
			c.refused("KV/RangeStream", &pb.RangeRequest{Key: b("a"), SortOrder: 3}, codes.InvalidArgument,
				"etcdserver: invalid sort option")
			c.refused("KV/RangeStream", &pb.RangeRequest{Key: b("a"), SortTarget: 5}, codes.InvalidArgument,
				"etcdserver: invalid sort option")
		}},
		{"a range stream with a custom sort or with revision filters is unimplemented", func(c *checker) {
			unsorted := []*pb.RangeRequest{{SortOrder: pb.RangeRequest_DESCEND}}
			for _, order := range []pb.RangeRequest_SortOrder{pb.RangeRequest_ASCEND, pb.RangeRequest_DESCEND} {
				for target := pb.RangeRequest_VERSION; target <= pb.RangeRequest_VALUE; target++ {
					unsorted = append(unsorted, &pb.RangeRequest{SortOrder: order, SortTarget: target})
				}
			}
			for _, q := range unsorted {
				q.Key = b("k")
				c.refused("KV/RangeStream", q, codes.Unimplemented, "RangeStream does not support custom sort orders")
			}
			for _, q := range []*pb.RangeRequest{{MinModRevision: 1}, {MaxModRevision: 1}, {MinCreateRevision: 1},
				{MaxCreateRevision: -1}} {
				q.Key = b("k")
				c.refused("KV/RangeStream", q, codes.Unimplemented, "RangeStream does not support revision filters")
			}
		}},
	})
}
