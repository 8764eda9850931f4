package etcdctl

import (
	"regexp"
	"strings"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// step is one call of etcdctl. Args are split at spaces, after LEASE in them was
// replaced by the id of the lease granted last.
type step struct {
	args  string
	input string
	// mask takes out what may differ, beyond the usual.
	mask []mask
	// until, if set, ends a call that does not end by itself, once its output has
	// this text. The output after it is not compared.
	until string
}

// mask replaces what a pattern matches, its first group if it has one.
type mask struct {
	pattern *regexp.Regexp
	by      string
}

// usualMasks take out identities, and what depends on when and where it ran.
var usualMasks = []mask{
	{regexp.MustCompile(`(?m)^\{"level":.*\n`), ""}, // etcdctl's own log
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST:PORT"},
	{regexp.MustCompile(`"(cluster_id|member_id|raft_term)":\d+`), `"$1":0`},
	{regexp.MustCompile(`"(ClusterID|MemberID|RaftTerm)" : \d+`), `"$1" : 0`},
	{regexp.MustCompile(`took = [^"\n]+`), "took = TIME"},
	{regexp.MustCompile(`took [0-9.]+[µm]?s`), "took TIME"},
}

// script is a sequence of etcdctl commands over the life of a store.
var script = []step{
	{args: "get nothing"},
	{args: "get nothing -w json"},
	{args: "put app/a 1"},
	{args: "put app/b 2"},
	{args: "put app/c", input: "from standard input"},
	{args: "put app/a 1a --prev-kv"},
	{args: "put app/a 1b -w json --prev-kv"},
	{args: "put app/a 1c -w fields"},
	{args: "put other x"},
	{args: "put zz/x 1"},
	{args: "put app/b --ignore-value"},
	{args: "put missing --ignore-value"},
	{args: "put missing x --ignore-lease"},
	{args: "put app/d x --lease 12345"},

	{args: "get app/a"},
	{args: "get app/ --prefix"},
	{args: "get app/ --prefix --keys-only"},
	{args: "get app/ --prefix --count-only"},
	{args: "get app/ --prefix --count-only -w fields"},
	{args: "get app/ --prefix --print-value-only"},
	{args: "get app/ --prefix --limit 2"},
	{args: "get app/ --prefix --limit 2 -w json"},
	{args: "get app/ --prefix --limit 2 -w fields"},
	{args: "get app/b --from-key"},
	{args: "get app/b app/d"},
	{args: "get --prefix --keys-only -- app/"},
	{args: "get app/ --prefix --rev 3"},
	{args: "get app/ --prefix --rev 3 -w json"},
	{args: "get app/ --prefix --rev 99"},
	{args: "get app/ --prefix --consistency s"},
	{args: "get app/ --prefix --sort-by MODIFY --order DESCEND"},
	{args: "get app/ --prefix --sort-by CREATE --order DESCEND"},
	{args: "get app/ --prefix --sort-by VERSION --order ASCEND"},
	{args: "get app/ --prefix --sort-by VALUE --order DESCEND --limit 2"},
	{args: "get app/ --prefix --sort-by KEY --order DESCEND"},
	{args: "get app/ --prefix --sort-by VALUE"},
	{args: "get app/ --prefix --min-mod-rev 4 --max-mod-rev 6"},
	{args: "get app/ --prefix --min-create-rev 3 --max-create-rev 4 -w json"},
	{args: "get app/ --prefix --stream"},
	{args: "get app/ --prefix --stream --limit 2 -w json"},
	{args: "get app/ --prefix --stream --sort-by VALUE --order DESCEND"},

	{args: "txn", input: "mod(\"app/a\") > \"1\"\n\nput app/t yes\nget app/a\ndel app/c\n\nput app/t no\n\n"},
	{args: "txn", input: "value(\"app/a\") = \"wrong\"\n\nput app/t yes\n\nget app/t\n\n"},
	{args: "txn -w json", input: "create(\"app/new\") = \"0\"\nversion(\"app/a\") > \"2\"\n\nput app/new made\nput app/new2 made\n\n\n"},
	{args: "txn -w fields", input: "create(\"app/new\") = \"0\"\n\nput app/new again\n\nget app/ --prefix\ndel app/new2 --prev-kv\n\n"},
	{args: "txn", input: "\n\nput app/t 1\nput app/t 2\n\n\n"},

	{args: "del app/t"},
	{args: "del app/t"},
	{args: "del app/b --prev-kv"},
	{args: "del app/new --prefix --prev-kv -w json"},
	{args: "del app/x app/z"},
	{args: "del zz --from-key"},
	{args: "endpoint hashkv"},
	{args: "endpoint hashkv --cluster"},
	{args: "endpoint hashkv --rev 5"},
	{args: "endpoint hashkv -w json"},

	{args: "watch --rev 2 --prefix app/", until: "DELETE\napp/new\n"},
	{args: "watch --rev 2 --prefix app/ --prev-kv", until: "DELETE\napp/new\nmade\n"},
	{args: "watch --rev 2 other zz --prev-kv -w json", until: "b3RoZXI="},
	{args: "watch --rev 4 app/a -w fields", until: `"Version" : 4`},
	{args: "watch --rev 8 --prefix zz -w json", until: `"type":1`},

	{args: "compaction 10"},
	{args: "compaction 10"},
	{args: "compaction 99"},
	{args: "get app/ --prefix --rev 9"},
	{args: "get app/ --prefix --rev 10"},
	{args: "watch --rev 3 app/a"},
	{args: "compaction 12 --physical"},
	{args: "endpoint hashkv -w json"},

	{args: "lease grant 500", mask: leaseMasks},
	{args: "lease list", mask: leaseMasks},
	{args: "put app/leased 1 --lease LEASE"},
	{args: "get app/leased -w json", mask: []mask{{regexp.MustCompile(`"lease":\d+`), `"lease":1`}}},
	{args: "lease timetolive LEASE", mask: leaseMasks},
	{args: "lease timetolive LEASE --keys", mask: leaseMasks},
	{args: "lease timetolive LEASE --keys -w json", mask: leaseMasks},
	{args: "lease keep-alive LEASE --once", mask: leaseMasks},
	// A second key only now: etcd lists the keys of a lease in any order.
	{args: "put app/leased2 2 --lease LEASE"},
	{args: "put app/leased2 3 --ignore-lease"},
	{args: "put app/leased 4"},
	{args: "lease timetolive LEASE --keys", mask: leaseMasks},
	{args: "lease revoke LEASE", mask: leaseMasks},
	{args: "lease revoke LEASE", mask: leaseMasks},
	{args: "lease timetolive LEASE", mask: leaseMasks},
	{args: "lease keep-alive LEASE --once", mask: leaseMasks},
	{args: "lease list"},
	{args: "get app/leased --prefix"},
	{args: "lease grant 99999999999", mask: leaseMasks},

	{args: "endpoint health", mask: []mask{{regexp.MustCompile(`took = \S+`), "took = TIME"}}},
	{args: "endpoint status -w json", mask: statusMasks},
	{args: "member list", mask: memberMasks},
	{args: "member list -w json", mask: memberMasks},
	{args: "alarm list"},
	{args: "alarm disarm"},
	{args: "defrag"},
	{args: "get  --from-key --count-only -w fields -- \x01"},
}

var (
	leaseMasks = []mask{
		{regexp.MustCompile(`\b[0-9a-f]{8,16}\b`), "LEASE"},
		{regexp.MustCompile(`"(id|ID)":-?\d+`), `"$1":1`},
		{regexp.MustCompile(`remaining\(\d+s\)`), "remaining(TIME)"},
		{regexp.MustCompile(`"ttl":4\d\d|"ttl":500`), `"ttl":500`}, // a busy machine needs seconds for a command
	}
	statusMasks = []mask{
		// The default quota of etcd is 2 GiB, that of sqlbrain is none.
		{regexp.MustCompile(`"dbSizeQuota":2147483648,`), ""},
		{regexp.MustCompile(`"(leader|raftIndex|raftTerm|raftAppliedIndex|dbSize|dbSizeInUse)":\d+`), `"$1":0`},
	}
	memberMasks = []mask{
		{regexp.MustCompile(`\b[0-9a-f]{8,16}\b`), "MEMBER"},
		{regexp.MustCompile(`"(ID|cluster_id|member_id)":\d+`), `"$1":0`},
		// A sqlbrain that serves no other members has no peer addresses, except on SQLite.
		{regexp.MustCompile(`"peerURLs":\["http://HOST:PORT"\],`), ""},
		{regexp.MustCompile(`default, http://HOST:PORT, `), "default, , "},
	}
	leaseID = regexp.MustCompile(`lease ([0-9a-f]+) granted`)
)

// commands is the script, with what the usual calls of a guide do not have: answers as tables, keys in hexadecimal.
func commands(r *reader) {
	r.script(script)
	r.etcdctl("get app/ --prefix -w table")
	r.etcdctl("get app/a --hex")
	r.etcdctl("get '' --from-key --keys-only --limit 1") // is there anything?
	r.etcdctl("defrag --cluster")
	r.etcdctlWith("version(\"nothing\") = \"0\"\n\n\ndel nothing\n\n", "txn -w table")
	r.etcdctlWith("nonsense\n\n\n\n", "txn")
}

// script runs steps one after the other.
func (r *reader) script(steps []step) {
	r.t.Helper()
	lease := ""
	for _, s := range steps {
		args := arguments(strings.ReplaceAll(s.args, "LEASE", lease))
		var out harness.Output
		if s.until != "" {
			out = harness.RunUntil(r.t, eventually.Deadline, s.until, harness.Etcdctl(r.t), r.nodes[0].EtcdctlArgs(args...)...)
			out.Stdout, _, _ = strings.Cut(out.Stdout, s.until)
		} else {
			out = r.nodes[0].Etcdctl(s.input, args...)
		}
		if m := leaseID.FindStringSubmatch(out.Stdout); m != nil {
			lease = m[1]
		}
		r.keep(s.args, out, s.mask)
	}
}
