package compat

import (
	"bytes"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestWatch(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	testClaims(t, nil, []claim{
		{"the first automatic id is 0, then the next free one", func(c *checker) {
			var got []int64
			for _, id := range []int64{0, 2, 0, 0, 0} {
				got = append(got, c.watch(0, &pb.WatchCreateRequest{Key: b("a"), WatchId: id}).GetWatchId())
			}
			c.holds(fmt.Sprint(got) == "[0 2 1 3 4]", "%v", got)
			c.cancelWatch(0, 1)
			id := c.watch(0, &pb.WatchCreateRequest{Key: b("a")}).GetWatchId()
			c.holds(id == 5, "an id is not chosen again: %d", id)
			c.holds(c.watch(1, &pb.WatchCreateRequest{Key: b("a")}).GetWatchId() == 0, "ids are the stream's")
		}},
		{"a refused create is created and canceled with id -1, and the stream stays open", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{Key: b("a"), WatchId: 3})
			for _, q := range []struct {
				*pb.WatchCreateRequest
				reason string
			}{
				{&pb.WatchCreateRequest{Key: b("a"), WatchId: 3}, "mvcc: duplicate watch ID provided on the WatchStream"},
				{&pb.WatchCreateRequest{Key: b("b"), RangeEnd: b("a")}, "mvcc: watcher range is empty"},
				{&pb.WatchCreateRequest{Key: b("b"), RangeEnd: b("b")}, "mvcc: watcher range is empty"},
				{&pb.WatchCreateRequest{Key: b("a"), StartRevision: -1}, "etcdserver: mvcc: required revision has been compacted"},
				{&pb.WatchCreateRequest{Key: b("b"), RangeEnd: b("a"), WatchId: 3, StartRevision: -1},
					"etcdserver: mvcc: required revision has been compacted"},
				{&pb.WatchCreateRequest{Key: b("b"), RangeEnd: b("a"), WatchId: 3}, "mvcc: watcher range is empty"},
			} {
				r := c.watch(0, q.WatchCreateRequest)
				c.holds(r.GetCreated() && r.GetCanceled() && r.GetWatchId() == -1 && r.GetCancelReason() == q.reason, "%v", r)
			}
			c.put("a", "")
			c.settle()
			c.holds(len(c.lastEvents()) == 1, "the first watch lives")
		}},
		{"negative ids are ids", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{Key: b("a"), WatchId: -7})
			c.put("a", "")
			c.cancelWatch(0, -7)
			c.put("a", "")
		}},
		{"a request without content is ignored", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{Key: b("a")})
			if err := c.streams[0].nothing(); err != nil {
				c.t.Fatal(err)
			}
			c.put("a", "")
			c.settle()
			c.holds(len(c.lastEvents()) == 1, "the stream goes on")
		}},
		{"a compacted start is created, then canceled with the compact revision", func(c *checker) {
			for i := range 6 {
				c.put("a", fmt.Sprint(i))
			}
			at := c.revision - 2
			c.compact(at, true)
			for _, start := range []int64{1, at - 1} {
				c.watch(0, &pb.WatchCreateRequest{Key: b("a"), StartRevision: start})
			}
			c.settle()
			canceled := 0
			for _, r := range c.streams[0].etcd.since(0) {
				if r.Canceled && r.CompactRevision == at && r.CancelReason == "" && r.Header.Revision == 0 && !r.Created {
					canceled++
				}
			}
			c.holds(canceled == 2, "%d canceled", canceled)
			c.progress(0)
			c.cancelWatch(0, 0)
			c.watch(0, &pb.WatchCreateRequest{Key: b("a"), WatchId: 1})
		}},
		{"starting at the compact revision works", func(c *checker) {
			for i := range 6 {
				c.put("a", fmt.Sprint(i))
			}
			at := c.revision - 2
			c.compact(at, true)
			for i, prev := range []bool{false, true} {
				c.watch(i, &pb.WatchCreateRequest{Key: b("a"), StartRevision: at, PrevKv: prev})
			}
			c.settle()
			c.holds(len(c.lastEvents()) == 3, "%v", c.lastEvents())
		}},
		{"starting where a tombstone was compacted works", func(c *checker) {
			c.put("a", "1")
			c.del("a", "")
			at := c.revision
			c.put("b", "1")
			c.compact(at, true)
			c.watch(0, &pb.WatchCreateRequest{Key: b("a"), RangeEnd: b("c"), StartRevision: at, PrevKv: true})
			c.settle()
		}},
		{"a future start waits", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{Key: b("a"), StartRevision: c.revision + 4})
			for i := range 5 {
				c.put("a", fmt.Sprint(i))
			}
			start := c.revision - 1
			c.settle()
			c.holds(len(c.lastEvents()) == 2 && c.lastEvents()[0].Kv.ModRevision == start, "%v", c.lastEvents())
		}},
		{"cancelling an unknown id is silent", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{Key: b("a")})
			for _, id := range []int64{9, -1, 0, 0} {
				c.cancelWatch(0, id)
			}
		}},
		{"an empty key is one zero byte", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{})
			c.watch(0, &pb.WatchCreateRequest{RangeEnd: b("\x00")})
			c.put("\x00", "")
			c.put("a", "")
		}},
		{"progress on request has id -1, and comes when every watch is synced and started", func(c *checker) {
			c.progress(0) // no watch but the fence's
			c.watch(0, &pb.WatchCreateRequest{Key: b("a")})
			c.put("a", "")
			c.progress(0)
			progress := func() (n int) {
				for _, r := range c.streams[0].etcd.since(0) {
					if r.WatchId == -1 && len(r.Events) == 0 && !r.Created {
						n++
					}
				}
				return n
			}
			before := progress()
			c.holds(before > 0, "%d", before)
			c.watch(0, &pb.WatchCreateRequest{Key: b("b"), StartRevision: c.revision + 100})
			c.progress(0)
			c.holds(progress() == before, "none while a watch has not started: %d", progress())
			c.cancelWatch(0, 1)
			c.progress(0)
			c.holds(progress() > before, "again: %d", progress())
		}},
		{"progress of a stream without watches does not come", func(c *checker) {
			s := c.stream(0)
			for range 3 {
				if err := s.progress(); err != nil {
					c.t.Fatal(err)
				}
			}
			c.watch(0, &pb.WatchCreateRequest{Key: b("a")})
			c.settle()
			for _, side := range s.sides() {
				for _, r := range side.since(0) {
					c.holds(r.WatchId != -1, "%s: %v", side.name, r)
				}
			}
		}},
		{"the events of one revision come together, a fragment says that it is one", func(c *checker) {
			large := string(make([]byte, 400<<10))
			c.watch(0, &pb.WatchCreateRequest{Key: b("k"), RangeEnd: b("l"), PrevKv: true, Fragment: true})
			c.watch(1, &pb.WatchCreateRequest{Key: b("k"), RangeEnd: b("l"), PrevKv: true})
			for range 2 {
				c.then(opsPut("k1", large), opsPut("k2", large), opsPut("k3", large))
			}
			c.settle()
			fragments := 0
			for _, r := range c.streams[0].etcd.since(0) {
				if r.Fragment {
					fragments++
				}
			}
			c.holds(fragments > 0, "%d fragments", fragments)
		}},
		{"filters", func(c *checker) {
			for i, f := range [][]pb.WatchCreateRequest_FilterType{{pb.WatchCreateRequest_NOPUT},
				{pb.WatchCreateRequest_NODELETE}, {0, 1}, {7}} {
				c.watch(i%streamsOpen, &pb.WatchCreateRequest{Key: b("a"), RangeEnd: b("z"), Filters: f})
				c.watch(i%streamsOpen, &pb.WatchCreateRequest{Key: b("a"), RangeEnd: b("z"), Filters: f, StartRevision: 1 +
					max(0, c.compacted)})
			}
			c.put("a", "")
			c.then(opsPut("b", ""), opsDelete("a", ""), opsPut("c", ""))
			c.settle()
			for _, e := range c.lastEvents()[:1] {
				c.holds(e.Type == 1 || e.Type == 0, "%v", e)
			}
		}},
		{"prev_kv is absent on creates, and when compacted", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{Key: b("a"), PrevKv: true})
			c.put("a", "1")
			c.put("a", "2")
			c.del("a", "")
			c.put("a", "3")
			c.settle()
			events := c.lastEvents()
			c.holds(len(events) == 4 && events[0].PrevKv == nil && events[1].PrevKv != nil && events[2].PrevKv != nil &&
				events[3].PrevKv == nil, "%v", events)
			c.put("a", "4")
			at := c.revision
			c.put("a", "5")
			c.compact(at, true)
			c.watch(1, &pb.WatchCreateRequest{Key: b("a"), PrevKv: true, StartRevision: at})
			c.settle()
		}},
		{"ranges of watches", func(c *checker) {
			for _, k := range []string{"", "a", "a\x00", "$", "\xff"} {
				for _, end := range []string{"", "\x00", "a", "b", "%", "\xff\xff"} {
					c.watch(0, &pb.WatchCreateRequest{Key: b(k), RangeEnd: b(end)})
				}
			}
			for _, k := range hostile {
				c.put(k, "")
			}
			c.del("\x00", "\x00")
		}},
		{"many revisions are caught up with, in order", func(c *checker) {
			from := c.revision + 1
			for i := range 400 {
				c.put(fmt.Sprint("k", i%7), fmt.Sprint(i))
			}
			c.watch(0, &pb.WatchCreateRequest{Key: b("k"), RangeEnd: b("l"), StartRevision: from, PrevKv: true})
			c.put("k1", "during")
			c.settle()
			c.holds(len(c.lastEvents()) == 401, "%d events", len(c.lastEvents()))
		}},
		{"a watch sees what a lease's end deletes", func(c *checker) {
			c.grant(1, 3600)
			for _, k := range []string{"b", "c", "a"} {
				c.kv("Put", &pb.PutRequest{Key: b(k), Lease: 1})
			}
			c.watch(0, &pb.WatchCreateRequest{Key: b("\x00"), RangeEnd: b("\x00"), PrevKv: true})
			c.revoke(1)
			c.settle()
			var keys []byte
			for _, e := range c.lastEvents() {
				keys = append(keys, e.Kv.Key...)
			}
			c.holds(bytes.HasPrefix(keys, b("abc")), "%q", keys)
		}},
	})
}

func TestWatchProgress(t *testing.T) {
	testClaims(t, []string{"--watch-progress-notify-interval=200ms"}, []claim{
		{"periodic progress is per watch", func(c *checker) {
			c.put("a", "")
			c.watch(0, &pb.WatchCreateRequest{Key: []byte("a"), WatchId: 4, ProgressNotify: true})
			c.watch(0, &pb.WatchCreateRequest{Key: []byte("a"), WatchId: 5})
			for _, side := range c.streams[0].sides() {
				ok := side.await(0, func(rs []*pb.WatchResponse) bool {
					n := 0
					for _, r := range rs {
						if !r.Created && r.WatchId == 4 && len(r.Events) == 0 && !r.Canceled && r.Header.Revision == c.revision {
							n++
						}
						c.holds(r.Created || r.WatchId == 4, "%s: %v", side.name, r)
					}
					return n >= 3
				})
				if !ok {
					c.t.Errorf("%s: no progress", side.name)
				}
			}
			c.streams[0].close() // how many came is a matter of time
			c.streams[0] = nil
		}},
	})
}
