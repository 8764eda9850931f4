package etcdctl

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// members: three nodes, of which the reader has the first one's address.
func members(r *reader) {
	list := func() { r.t.Helper(); r.inOrder("member list") }
	list()
	r.inOrder("member list -w table", tableMasks...)
	r.inOrder("endpoint health --cluster")
	r.inOrder("endpoint hashkv --cluster")
	r.settled()
	r.inOrder("endpoint status --cluster", append(statusText[:len(statusText):len(statusText)],
		mask{regexp.MustCompile(`(true|false), false, TERM`), "LEADS, false, TERM"})...)

	peer := fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(r.t))
	// etcd admits no member before all members have been connected for some seconds.
	added := r.admitted("member add etcd_node3 --peer-urls=" + peer)
	list()
	listed, err := r.nodes[0].Client().MemberList(r.t.Context())
	require.NoError(r.t, err)
	for _, m := range listed.Members {
		// Not with the URL of the new one, which etcd takes for the same member within
		// the same second.
		if m.ID == listed.Header.MemberId {
			r.etcdctl("member add etcd_node4 --peer-urls=" + m.PeerURLs[0])
		}
	}
	r.etcdctl("member remove " + added[2]) // the cluster's id, by mistake
	r.etcdctl("member update " + added[1] + " --peer-urls=" + peer + "0")
	r.etcdctl("member update " + added[1] + " --peer-urls=http://127.0.0.1:1")
	r.etcdctl("member remove " + added[1])
	r.etcdctl("member remove " + added[1])
	list()
	r.etcdctl("member remove nonsense")
	r.etcdctl("member add etcd_node3")
	r.etcdctl("member add etcd_node3 --peer-urls=nonsense")

	leader, follower := r.leaderAndFollower()
	r.etcdctl("member promote " + follower)
	all := "--endpoints=" + r.nodes[0].Endpoint() + "," + r.nodes[1].Endpoint() + "," + r.nodes[2].Endpoint()
	r.etcdctl(all + " move-leader 1234")
	r.etcdctl(all + " move-leader " + leader)
	r.etcdctl(all + " move-leader " + follower)
	r.until(follower+" leads", func() bool { now, _ := r.leaderAndFollower(); return now == follower })
	r.etcdctl(all + " put after move")
	r.etcdctl("get after")
}

// admitted repeats the command that adds a member until it is added, and returns the
// ids of the member and of the cluster.
func (r *reader) admitted(command string) (ids []string) {
	r.t.Helper()
	r.until(command, func() bool {
		before := len(r.seen)
		ids = regexp.MustCompile(`Member +([0-9a-f]+) added to cluster +([0-9a-f]+)`).FindStringSubmatch(
			r.inOrder(command).Stdout)
		if ids == nil {
			r.seen = r.seen[:before]
		}
		return ids != nil
	})
	return ids
}

// inOrder is etcdctl where the order of lines, and who is which node, is chance.
func (r *reader) inOrder(command string, masks ...mask) harness.Output {
	r.t.Helper()
	out := r.nodes[0].Etcdctl("", arguments(command)...)
	r.keep(command, out, append([]mask{{regexp.MustCompile(`(etcd_)?node\d`), "NODE"}}, masks...))
	last := &r.seen[len(r.seen)-1].Back
	last.Stdout, last.Stderr = sorted(last.Stdout), sorted(last.Stderr)
	return out
}

// leaderAndFollower are the ids of the leader and of one that is not.
func (r *reader) leaderAndFollower() (leader, follower string) {
	r.t.Helper()
	var nodes []struct {
		Status struct {
			Header struct {
				MemberID uint64 `json:"member_id"`
			}
			Leader uint64
		}
	}
	out := r.nodes[0].Etcdctl("", "endpoint", "status", "--cluster", "-w", "json")
	require.NoError(r.t, json.Unmarshal([]byte(out.Stdout), &nodes), out.Stderr)
	for _, n := range nodes {
		if id := fmt.Sprintf("%x", n.Status.Header.MemberID); n.Status.Leader == n.Status.Header.MemberID {
			leader = id
		} else {
			follower = id
		}
	}
	return leader, follower
}
