package compat

import (
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

func TestLease(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	ttl := func(c *checker, id int64) *pb.LeaseTimeToLiveResponse {
		return response[pb.LeaseTimeToLiveResponse](c.ask("Lease/LeaseTimeToLive",
			&pb.LeaseTimeToLiveRequest{ID: id, Keys: true}))
	}
	testClaims(t, nil, []claim{
		{"a TTL above 9,000,000,000 is refused", func(c *checker) {
			c.refused("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 1, TTL: 9_000_000_001}, codes.OutOfRange,
				"etcdserver: too large lease TTL")
			c.refused("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 1, TTL: math.MaxInt64}, codes.OutOfRange,
				"etcdserver: too large lease TTL")
			c.holds(c.grant(1, 9_000_000_000).err == nil, "9,000,000,000 is allowed")
		}},
		{"a TTL of -1, 0 or 1 becomes 2", func(c *checker) {
			for _, n := range []int64{-1, 0, 1, 2, math.MinInt64} {
				r := response[pb.LeaseGrantResponse](c.ask("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 1, TTL: n}))
				c.holds(r.TTL == 2, "%d: %v", n, r)
				for _, s := range c.p.sides() { // not compared: on a busy machine the lease may have ended at one of them
					s.ask(call{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 1}})
				}
			}
		}},
		{"id 0 is chosen", func(c *checker) {
			c.chosenLease(func(id [2]int64) { c.holds(id[0] > 0 && id[1] > 0, "%v", id) })
		}},
		{"negative ids are fine", func(c *checker) {
			c.grant(-5, 3600)
			c.kv("Put", &pb.PutRequest{Key: b("a"), Lease: -5})
			c.holds(len(ttl(c, -5).Keys) == 1, "%v", ttl(c, -5))
			c.grant(math.MinInt64, 7200)
			c.revoke(math.MinInt64)
		}},
		{"an id in use is refused", func(c *checker) {
			c.grant(1, 3600)
			c.refused("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 1, TTL: 100}, codes.FailedPrecondition,
				"etcdserver: lease already exists")
		}},
		{"revoking a missing lease is not found", func(c *checker) {
			c.refused("Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 9}, codes.NotFound,
				"etcdserver: requested lease not found")
			c.refused("Lease/LeaseRevoke", &pb.LeaseRevokeRequest{}, codes.NotFound, "etcdserver: requested lease not found")
		}},
		{"the time to live of a missing lease is -1, and no error", func(c *checker) {
			c.holds(ttl(c, 9).TTL == -1, "%v", ttl(c, 9))
			ttl(c, 0)
		}},
		{"renewing a missing lease answers 0, and the stream goes on", func(c *checker) {
			r := response[pb.LeaseKeepAliveResponse](c.ask("Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 9}))
			c.holds(r.ID == 9 && r.TTL == 0, "%v", r)
		}},
		{"renewing answers the granted time", func(c *checker) {
			c.grant(1, 3600)
			r := response[pb.LeaseKeepAliveResponse](c.ask("Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 1}))
			c.holds(r.TTL == 3600, "%v", r)
		}},
		{"revoking deletes all keys in one revision, in key order", func(c *checker) {
			c.grant(1, 3600)
			for _, k := range []string{"c", "a", "b\x00", "b", "%", "$"} {
				c.kv("Put", &pb.PutRequest{Key: b(k), Lease: 1})
			}
			c.put("d", "")
			before := c.revision
			c.watch(0, &pb.WatchCreateRequest{Key: b("\x00"), RangeEnd: b("\x00"), PrevKv: true})
			c.revoke(1)
			c.settle()
			keys := ""
			for _, e := range c.lastEvents() {
				if e.Kv.ModRevision == before+1 {
					keys += string(e.Kv.Key) + " "
				}
			}
			c.holds(keys == "$ % a b b\x00 c ", "%q", keys)
		}},
		{"revoking a lease without keys makes no revision", func(c *checker) {
			c.grant(1, 3600)
			before := c.revision
			c.revoke(1)
			c.holds(c.revision == before, "%d", c.revision)
		}},
		{"a deleted key, and one put with another lease, are no longer the lease's", func(c *checker) {
			c.grant(1, 3600)
			c.grant(2, 7200)
			for _, k := range []string{"a", "b", "c"} {
				c.kv("Put", &pb.PutRequest{Key: b(k), Lease: 1})
			}
			c.del("a", "")
			c.kv("Put", &pb.PutRequest{Key: b("b"), Lease: 2})
			c.holds(len(ttl(c, 1).Keys) == 1, "%v", ttl(c, 1))
			c.put("a", "without")
			c.revoke(1)
			c.holds(c.get("a") != nil && c.get("b") != nil && c.get("c") == nil, "")
		}},
		{"leases are listed, those that end first in front", func(c *checker) {
			c.grant(3, 3600)
			c.grant(1, 9000)
			c.grant(2, 600)
			r := response[pb.LeaseLeasesResponse](c.ask("Lease/LeaseLeases", &pb.LeaseLeasesRequest{}))
			c.holds(len(r.Leases) == 3 && r.Leases[0].ID == 2 && r.Leases[2].ID == 1, "%v", r)
		}},
		{"an expired lease's keys are deleted in one revision, in key order", func(c *checker) {
			c.watch(0, &pb.WatchCreateRequest{Key: b("k"), RangeEnd: b("l"), PrevKv: true})
			c.ask("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 50, TTL: 15}) // long enough to put the keys on a busy machine
			for _, k := range []string{"k3", "k1", "k2"} {
				c.kv("Put", &pb.PutRequest{Key: b(k), Lease: 50})
			}
			for _, side := range c.streams[0].sides() {
				ok := side.await(0, func(rs []*pb.WatchResponse) bool {
					return len(rs) > 0 && len(rs[len(rs)-1].Events) == 3
				})
				if !ok {
					c.t.Errorf("%s: the lease does not expire", side.name)
				}
			}
			c.settle()
			c.holds(ttl(c, 50).TTL == -1, "%v", ttl(c, 50))
			c.ask("Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 50})
			c.rng(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l")})
		}},
	})
}
