package compat

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	lockMethod     = "v3lockpb.Lock/Lock"
	unlockMethod   = "v3lockpb.Lock/Unlock"
	campaignMethod = "v3electionpb.Election/Campaign"
	proclaimMethod = "v3electionpb.Election/Proclaim"
	leaderMethod   = "v3electionpb.Election/Leader"
	observeMethod  = "v3electionpb.Election/Observe"
	resignMethod   = "v3electionpb.Election/Resign"
)

// queued is a request that both servers have and answer later.
type queued struct {
	c             *checker
	call          call
	etcd, subject chan answer
}

// queue sends a request that stands in line under key, and returns when it does
// so on both servers.
func (c *checker) queue(method string, req proto.Message, key string) *queued {
	c.t.Helper()
	q := &queued{c: c, call: call{method, req}, etcd: make(chan answer, 1), subject: make(chan answer, 1)}
	c.trace = append(c.trace, "begin "+q.call.String())
	go func() { q.etcd <- c.p.etcd.ask(q.call) }()
	go func() { q.subject <- c.p.subject.ask(q.call) }()
	for _, s := range c.p.sides() {
		if err := s.awaitPut(key, c.revision+1); err != nil {
			c.t.Fatal(err)
		}
	}
	c.revision++
	return q
}

// waits fails the test if a server has answered. That they would not answer later
// either, the claims see by what the answers say.
func (q *queued) waits() {
	q.c.t.Helper()
	if len(q.etcd)+len(q.subject) > 0 {
		q.c.t.Errorf("answered: etcd %d, subject %d of 1", len(q.etcd), len(q.subject))
	}
}

// end waits for the answers, compares them and returns etcd's.
func (q *queued) end() answer {
	q.c.trace = append(q.c.trace, "end "+q.call.String())
	etcd, subject := <-q.etcd, <-q.subject
	q.c.compare(q.call, etcd, subject)
	q.c.learn(etcd)
	return etcd
}

// awaitPut waits until key is put, at revision from or later.
func (s *side) awaitPut(key string, from int64) error {
	w, err := s.openWatch(context.Background())
	if err != nil {
		return err
	}
	defer w.close()
	r := &pb.WatchCreateRequest{Key: []byte(key), StartRevision: from,
		Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}}
	if err := w.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		return err
	}
	if !w.await(0, func(rs []*pb.WatchResponse) bool { return len(rs) > 1 }) {
		return fmt.Errorf("%s: no client puts %q", s.name, key)
	}
	return nil
}

func (c *checker) lock(name string, lease int64) answer {
	return c.ask(lockMethod, &v3lockpb.LockRequest{Name: []byte(name), Lease: lease})
}

func (c *checker) queueLock(name string, lease int64) *queued {
	c.t.Helper()
	return c.queue(lockMethod, &v3lockpb.LockRequest{Name: []byte(name), Lease: lease}, fmt.Sprintf("%s/%x", name, lease))
}

func (c *checker) unlock(key string) answer {
	return c.ask(unlockMethod, &v3lockpb.UnlockRequest{Key: []byte(key)})
}

// chosenKey asks for what is queued under a lease that each server chooses, looks
// whether the key and the lease are as they must be, and compares how many seconds
// the lease has. keyOf finds the key in an answer.
func (c *checker) chosenKey(q call, name string, keyOf func(proto.Message) []byte) {
	c.t.Helper()
	c.trace = append(c.trace, q.String()+" under a chosen lease")
	var got []string
	for _, s := range c.p.sides() {
		a := s.ask(q)
		if a.only() == nil {
			c.t.Fatalf("%s: %s", s.name, a)
		}
		key := string(keyOf(a.only()))
		kv := response[pb.RangeResponse](s.ask(call{"KV/Range", &pb.RangeRequest{Key: []byte(key)}})).GetKvs()[0]
		if want := fmt.Sprintf("%s/%x", name, uint64(kv.Lease)); key != want {
			c.t.Errorf("%s: the key is %q, and its lease says %q", s.name, key, want)
		}
		ttl := response[pb.LeaseTimeToLiveResponse](
			s.ask(call{"Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: kv.Lease}}))
		got = append(got, fmt.Sprint(kv.ModRevision, ttl.GrantedTTL))
		if a := s.ask(call{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: kv.Lease}}); a.err != nil {
			c.t.Errorf("%s: %v", s.name, a.err)
		}
	}
	if c.same(q.String(), got) {
		c.rec.request(q, true)
	}
	c.holds(strings.HasSuffix(got[0], " 60"), "60 s: %s", got[0])
}

func TestLock(t *testing.T) {
	testClaims(t, nil, []claim{
		{"a lock's key is its name and the lease", func(c *checker) {
			c.grant(0x1f, 3600)
			r := response[v3lockpb.LockResponse](c.lock("l", 0x1f))
			c.holds(string(r.Key) == "l/1f", "%v", r)
			kv := c.get("l/1f")
			c.holds(kv != nil && kv.Lease == 0x1f && len(kv.Value) == 0, "%v", kv)
			c.unlock("l/1f")
			c.holds(c.get("l/1f") == nil, "unlocking deletes it")
		}},
		{"without a lease a lock has one of 60 s", func(c *checker) {
			c.chosenKey(call{lockMethod, &v3lockpb.LockRequest{Name: []byte("l")}}, "l",
				func(m proto.Message) []byte { return m.(*v3lockpb.LockResponse).Key })
		}},
		{"who has a lock gets it again", func(c *checker) {
			c.grant(1, 3600)
			c.lock("l", 1)
			c.put("other", "")
			c.lock("l", 1)
			c.holds(c.get("l/1").Version == 1, "nothing is written")
		}},
		{"waiters get the lock in the order they came", func(c *checker) {
			for lease := range int64(4) {
				c.grant(lease+1, 3600)
			}
			c.lock("l", 3)
			second := c.queueLock("l", 2)
			third := c.queueLock("l", 4)
			fourth := c.queueLock("l", 1)
			second.waits()
			c.unlock("l/3")
			c.holds(second.end().err == nil, "the second")
			third.waits()
			c.unlock("l/2")
			c.holds(third.end().err == nil, "the third")
			fourth.waits()
			c.unlock("l/4")
			c.holds(fourth.end().err == nil, "the fourth")
		}},
		{"a lease that ends unlocks", func(c *checker) {
			c.grant(1, 3600)
			c.grant(2, 3600)
			c.lock("l", 1)
			second := c.queueLock("l", 2)
			second.waits()
			c.revoke(1)
			c.holds(second.end().err == nil, "the second has it")
		}},
		{"a lease that runs out unlocks", func(c *checker) {
			// The servers revoke at different times, but in a revision of the same number.
			c.ask("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 1, TTL: 15}) // long enough to take the lock
			c.grant(2, 3600)
			c.lock("l", 1)
			c.holds(c.queueLock("l", 2).end().err == nil, "the second has it")
		}},
		{"a waiter whose own lease ends is told when its turn comes", func(c *checker) {
			c.grant(1, 3600)
			c.grant(2, 3600)
			c.lock("l", 1)
			second := c.queueLock("l", 2)
			c.revoke(2)
			second.waits()
			c.unlock("l/1")
			c.isRefused(second.end(), codes.Unknown, "mutex: session is expired")
		}},
		{"unlocking is deleting a key, whoever asks", func(c *checker) {
			c.grant(1, 3600)
			c.grant(2, 3600)
			c.lock("l", 1)
			c.put("a", "")
			c.unlock("a")
			c.holds(c.get("a") == nil, "it need not be a lock's")
			c.unlock("l/2")
			second := c.queueLock("l", 2)
			c.unlock("l/2") // gives up its place, which it learns when its turn comes
			second.waits()
			c.unlock("l/1")
			c.isRefused(second.end(), codes.Unknown, "mutex: session is expired")
		}},
		{"locks whose names begin alike are not the same", func(c *checker) {
			c.grant(1, 3600)
			c.grant(2, 3600)
			c.lock("l", 1)
			c.lock("l2", 2)
			c.lock("l/", 2)
		}},
		{"any key under a lock's name is in the way", func(c *checker) {
			c.grant(1, 3600)
			c.put("l/x/y", "")
			q := c.queueLock("l", 1)
			q.waits()
			c.del("l/x/y", "")
			c.holds(q.end().err == nil, "")
		}},
		{"names are bytes, and may be empty", func(c *checker) {
			c.grant(1, 3600)
			c.grant(-1, 3600)
			r := response[v3lockpb.LockResponse](c.lock("", 1))
			c.holds(string(r.Key) == "/1", "%v", r)
			c.lock("\x00\xff", 1)
			c.lock("$%/", -1)
		}},
		{"a lease that is missing, or a key that is, is refused without the code of its error", func(c *checker) {
			c.isRefused(c.lock("l", 9), codes.Unknown, "etcdserver: requested lease not found")
			c.isRefused(c.lock("", 9), codes.Unknown, "etcdserver: requested lease not found")
			c.isRefused(c.lock("l", -1), codes.Unknown, "etcdserver: requested lease not found")
			c.isRefused(c.unlock(""), codes.Unknown, "etcdserver: key is not provided")
			c.holds(c.unlock("nothing").err == nil, "a key that is not there is unlocked")
		}},
		{"over HTTP", func(c *checker) {
			c.grant(1, 3600)
			c.web("POST", "/v3/lock/lock", `{"name":"bA==","lease":"1"}`)
			c.web("POST", "/v3/lock/lock", `{"name":"bA==","lease":"9"}`)
			c.web("POST", "/v3/lock/unlock", `{"key":"bC8x"}`)
			c.web("POST", "/v3/lock/unlock", `{}`)
			c.web("POST", "/v3/lock/nothing", `{}`)
			c.web("GET", "/v3/lock/lock", ``)
		}},
	})
}

// isRefused fails the test unless etcd has answered with the code and text given.
func (c *checker) isRefused(a answer, code codes.Code, text string) {
	c.t.Helper()
	want := answer{err: status.Error(code, text)}
	c.holds(a.String() == want.String(), "%s, but %s", want, a)
}

func (c *checker) campaign(name string, lease int64, value string) answer {
	return c.ask(campaignMethod, &v3electionpb.CampaignRequest{Name: []byte(name), Lease: lease, Value: []byte(value)})
}

func (c *checker) queueCampaign(name string, lease int64, value string) *queued {
	c.t.Helper()
	return c.queue(campaignMethod, &v3electionpb.CampaignRequest{Name: []byte(name), Lease: lease, Value: []byte(value)},
		fmt.Sprintf("%s/%x", name, lease))
}

func (c *checker) proclaim(l *v3electionpb.LeaderKey, value string) answer {
	return c.ask(proclaimMethod, &v3electionpb.ProclaimRequest{Leader: l, Value: []byte(value)})
}

func (c *checker) resign(l *v3electionpb.LeaderKey) answer {
	return c.ask(resignMethod, &v3electionpb.ResignRequest{Leader: l})
}

// leader returns the value of who leads.
func (c *checker) leader(name string) string {
	a := c.ask(leaderMethod, &v3electionpb.LeaderRequest{Name: []byte(name)})
	return string(response[v3electionpb.LeaderResponse](a).GetKv().GetValue())
}

func leaderOf(a answer) *v3electionpb.LeaderKey {
	return response[v3electionpb.CampaignResponse](a).GetLeader()
}

// observers watch one election on both servers.
type observers struct {
	c       *checker
	call    call
	streams [2]v3electionpb.Election_ObserveClient
	cancel  context.CancelFunc
}

func (c *checker) observe(name string) *observers {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), callWait)
	q := &v3electionpb.LeaderRequest{Name: []byte(name)}
	o := &observers{c: c, call: call{observeMethod, q}, cancel: cancel}
	c.trace = append(c.trace, o.call.String())
	for i, s := range c.p.sides() {
		var err error
		if o.streams[i], err = v3electionpb.NewElectionClient(s.conn).Observe(ctx, q); err != nil {
			c.t.Fatal(err)
		}
	}
	return o
}

// next compares what both servers say next, and returns the leader's value in etcd.
func (o *observers) next() string {
	o.c.t.Helper()
	var answers [2]answer
	var both sync.WaitGroup
	for i, stream := range o.streams {
		both.Go(func() {
			r, err := stream.Recv()
			if answers[i].err = err; err == nil {
				answers[i].messages = []proto.Message{r}
			}
		})
	}
	both.Wait()
	o.c.compare(o.call, answers[0], answers[1])
	return string(response[v3electionpb.LeaderResponse](answers[0]).GetKv().GetValue())
}

// close ends the streams, and waits for their ends.
func (o *observers) close() {
	o.cancel()
	for _, stream := range o.streams {
		for {
			if _, err := stream.Recv(); err != nil {
				break
			}
		}
	}
}

func TestElection(t *testing.T) {
	testClaims(t, nil, []claim{
		{"who campaigns alone leads, and says what it leads with", func(c *checker) {
			c.grant(0x1f, 3600)
			l := leaderOf(c.campaign("e", 0x1f, "v"))
			c.holds(string(l.GetKey()) == "e/1f" && string(l.GetName()) == "e" && l.GetLease() == 0x1f &&
				l.GetRev() == c.revision, "%v", l)
			c.holds(c.leader("e") == "v", "it leads")
		}},
		{"without a lease a candidate has one of 60 s", func(c *checker) {
			c.chosenKey(call{campaignMethod, &v3electionpb.CampaignRequest{Name: []byte("e"), Value: []byte("v")}}, "e",
				func(m proto.Message) []byte { return m.(*v3electionpb.CampaignResponse).Leader.Key })
		}},
		{"candidates lead in the order they came", func(c *checker) {
			for lease := range int64(3) {
				c.grant(lease+1, 3600)
			}
			first := leaderOf(c.campaign("e", 3, "first"))
			second := c.queueCampaign("e", 1, "second")
			third := c.queueCampaign("e", 2, "third")
			second.waits()
			c.holds(c.leader("e") == "first", "the first leads")
			c.resign(first)
			l := leaderOf(second.end())
			third.waits()
			c.holds(c.leader("e") == "second", "the second leads")
			c.revoke(1)
			third.end()
			c.holds(c.leader("e") == "third", "a lease that ends ends the leadership")
			c.isRefused(c.proclaim(l, "late"), codes.Unknown, "election: not leader")
		}},
		{"who campaigns again proclaims", func(c *checker) {
			c.grant(1, 3600)
			c.campaign("e", 1, "1")
			c.campaign("e", 1, "1")
			c.campaign("e", 1, "2")
			c.holds(c.leader("e") == "2" && c.get("e/1").Version == 2, "%v", c.get("e/1"))
		}},
		{"a leader proclaims, and one that is none may not", func(c *checker) {
			c.grant(1, 3600)
			l := leaderOf(c.campaign("e", 1, "1"))
			c.proclaim(l, "2")
			c.holds(c.leader("e") == "2", "")
			c.proclaim(l, "")
			other := proto.CloneOf(l)
			other.Rev++
			c.isRefused(c.proclaim(other, "3"), codes.Unknown, "election: not leader")
			other = proto.CloneOf(l)
			other.Key = []byte("e/2")
			c.isRefused(c.proclaim(other, "3"), codes.Unknown, "election: not leader")
			other = proto.CloneOf(l)
			other.Lease = 9
			c.isRefused(c.proclaim(other, "3"), codes.Unknown, "etcdserver: requested lease not found")
			other = proto.CloneOf(l)
			other.Name = []byte("another")
			c.proclaim(other, "3")
			c.holds(c.leader("e") == "3", "its name is not looked at")
		}},
		{"resigning deletes the key, unless somebody else has it", func(c *checker) {
			c.grant(1, 3600)
			l := leaderOf(c.campaign("e", 1, "1"))
			other := proto.CloneOf(l)
			other.Rev--
			c.holds(c.resign(other).err == nil && c.leader("e") == "1", "no error, and no effect")
			c.resign(l)
			c.holds(c.get("e/1") == nil, "")
			c.holds(c.resign(l).err == nil, "twice")
		}},
		{"an observer is told of every leader and of what it proclaims", func(c *checker) {
			c.grant(1, 3600)
			c.grant(2, 3600)
			o := c.observe("e")
			defer o.close()
			l := leaderOf(c.campaign("e", 1, "1"))
			c.holds(o.next() == "1", "the first leader")
			c.proclaim(l, "2")
			c.holds(o.next() == "2", "what it proclaims")
			second := c.queueCampaign("e", 2, "3")
			c.resign(l)
			second.end()
			c.holds(o.next() == "3", "the next leader")
			c.revoke(2)
			c.grant(3, 3600)
			c.campaign("e", 3, "4")
			c.holds(o.next() == "4", "the one after nobody")
		}},
		{"an observer is told at once who leads", func(c *checker) {
			c.grant(1, 3600)
			c.campaign("e", 1, "1")
			o := c.observe("e")
			defer o.close()
			c.holds(o.next() == "1", "")
		}},
		{"names are bytes, and may be empty", func(c *checker) {
			c.grant(1, 3600)
			l := leaderOf(c.campaign("", 1, ""))
			c.holds(string(l.GetKey()) == "/1", "%v", l)
			c.ask(leaderMethod, &v3electionpb.LeaderRequest{})
			c.resign(l)
			c.campaign("\x00\xff", 1, "\x00")
			c.ask(leaderMethod, &v3electionpb.LeaderRequest{Name: []byte("\x00\xff")})
		}},
		{"what is missing is refused without the code of its error", func(c *checker) {
			c.isRefused(c.campaign("e", 9, "v"), codes.Unknown, "etcdserver: requested lease not found")
			c.isRefused(c.campaign("", 9, ""), codes.Unknown, "etcdserver: requested lease not found")
			c.isRefused(c.ask(leaderMethod, &v3electionpb.LeaderRequest{Name: []byte("e")}), codes.Unknown,
				"election: no leader")
			c.isRefused(c.ask(leaderMethod, &v3electionpb.LeaderRequest{}), codes.Unknown, "election: no leader")
			c.isRefused(c.proclaim(nil, "v"), codes.Unknown, `"leader" field must be provided`)
			c.isRefused(c.resign(nil), codes.Unknown, `"leader" field must be provided`)
			// Nothing is created at revision 0, as a compare sees it.
			c.isRefused(c.resign(&v3electionpb.LeaderKey{Lease: 9}), codes.Unknown, "etcdserver: key is not provided")
			c.isRefused(c.proclaim(&v3electionpb.LeaderKey{Lease: 9}, "v"), codes.Unknown, "etcdserver: key is not provided")
		}},
		{"a value that is too large is refused without the code of its error", func(c *checker) {
			c.grant(1, 3600)
			c.isRefused(c.campaign("e", 1, strings.Repeat("v", 1600<<10)), codes.Unknown, "etcdserver: request is too large")
		}},
		{"over HTTP", func(c *checker) {
			c.grant(1, 3600)
			c.web("POST", "/v3/election/leader", `{"name":"ZQ=="}`)
			c.web("POST", "/v3/election/campaign", `{"name":"ZQ==","lease":"1","value":"MQ=="}`)
			c.web("POST", "/v3/election/leader", `{"name":"ZQ=="}`)
			leader := fmt.Sprintf(`{"name":"ZQ==","key":"ZS8x","rev":"%d","lease":"1"}`, c.get("e/1").ModRevision)
			c.web("POST", "/v3/election/proclaim", `{"leader":`+leader+`,"value":"Mg=="}`)
			c.web("POST", "/v3/election/proclaim", `{}`)
			c.sameStream("/v3/election/observe", `{"name":"ZQ=="}`, 1)
			c.web("POST", "/v3/election/resign", `{"leader":`+leader+`}`)
			c.web("POST", "/v3/election/resign", `{}`)
		}},
	})
}
