package etcdctl

import (
	"fmt"
	"regexp"
	"strings"
)

func authentication(r *reader) {
	r.etcdctl("user add root:root")
	r.etcdctl("--user=root:root user grant-role root root")
	r.etcdctl("auth enable")
	r.etcdctl("put hello world")
	r.etcdctl("--user=root:root put hello 'This is a authentication'")
	r.etcdctl("put hello world --user alice:alice")
	r.etcdctl("user add alice:alice --user root:root")
	r.etcdctl("put hello world --user alice:alice")
	r.etcdctl("role add admin --user root:root")
	r.etcdctl("role grant-permission admin readwrite hello helly --user root:root")
	r.etcdctl("user grant-role alice admin --user root:root")
	r.etcdctl("put hello world --user alice:alice")
	r.etcdctl("put hey hey --user alice:alice")
	r.etcdctl("get hello --user alice:alice -w json")
	r.etcdctl("role get admin --user root:root -w json")
	r.etcdctl("user get alice --user root:root -w json")
	r.etcdctl("user list --user root:root -w json")
	r.etcdctl("auth status --user root:root -w json")

	// A watch continues when its permission is revoked.
	w := r.open("watch hello --rev 3 --user alice:alice")
	w.await("PUT\nhello\nworld\n")
	r.etcdctl("role revoke-permission admin hello helly --user root:root")
	r.etcdctl("put hello later --user root:root")
	w.await("later\n")
	w.interrupt()
	r.etcdctl("put hello world --user alice:alice")
	r.etcdctl("get hello --user alice:alice")
	r.etcdctl("user revoke-role alice admin --user root:root")
	r.etcdctl("role delete admin --user root:root")
	r.etcdctl("user delete alice --user root:root")
	r.etcdctl("get hello --user alice:alice")
	r.etcdctl("auth disable --user root:root")
	r.etcdctl("get hello")
}

const granted = `lease ([0-9a-f]+) granted`

func leases(r *reader) {
	id := r.find(granted, "lease grant 600")
	r.etcdctl("lease timetolive " + id)
	r.etcdctl("put node healthy --lease " + id)
	r.etcdctl("get node -w json")
	r.etcdctl("get node -w fields")
	r.etcdctl("lease timetolive " + id + " --keys")
	r.etcdctl("lease timetolive " + id + " --keys -w fields")
	r.etcdctl("lease list")
	r.etcdctl("lease list -w json")
	alive := r.open("lease keep-alive " + id)
	alive.await("keepalived with TTL(600)")
	alive.interrupt()
	r.etcdctl("lease keep-alive " + id + " --once -w json")
	r.etcdctl("lease revoke " + id)
	r.etcdctl("get node")
	r.etcdctl("put node healthy --lease " + id)

	// Nobody keeps this one alive; it lives until a watch has been opened and a key put.
	short := r.find(granted, "lease grant 20")
	w := r.open("watch node --prev-kv --rev 4")
	r.etcdctl("put node healthy --lease " + short)
	w.await("PUT\nnode\nhealthy\n")
	w.await("DELETE\nnode\nhealthy\nnode\n\n")
	w.interrupt()
	r.eventually("get node", "")
	r.etcdctl("lease timetolive " + short)
	r.etcdctl("lease keep-alive " + short)
	r.etcdctl("lease grant 0")
	r.etcdctl("lease grant -1")
	r.etcdctl("lease grant x")
}

func watches(r *reader) {
	one := r.open("watch foo --rev 2")
	all := r.open("watch foo --prefix --prev-kv --rev 2")
	asJSON := r.open("watch foo -w json --rev 2")
	asFields := r.open("watch foo -w fields --rev 2")
	told := r.open("watch foo --rev 2 -- sh -c 'echo $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE at " +
		"$ETCD_WATCH_REVISION'")
	for i, change := range []struct{ typed, printed string }{
		{"put foo bar", "PUT\nfoo\nbar\n"},
		{"put foo bar_latest", "bar_latest\n"},
		{"del foo", "DELETE\nfoo\n"},
		{"put foo end", "end\n"},
	} {
		r.etcdctl(change.typed)
		// One event at a time: whether they come together is chance otherwise.
		one.await(change.printed)
		all.await(change.printed)
		asJSON.await(fmt.Sprintf(`"mod_revision":%d`, i+2))
		asFields.await(fmt.Sprintf(`"ModRevision" : %d`, i+2))
		told.await(fmt.Sprintf(" at %d\n", i+2))
	}
	asFields.await("\"ModRevision\" : 5\n\"Version\" : 1\n\"Value\" : \"end\"\n\"Lease\" : 0\n") // line by line
	for _, w := range []*window{one, all, asJSON, asFields, told} {
		w.interrupt()
	}
	r.etcdctl("put foo1 other")

	typed := r.open("watch -i")
	typed.Type("watch foo --rev 3")
	typed.await("bar_latest\n")
	typed.await("end\n")
	typed.Type("progress")
	typed.await("progress notify: 6")
	typed.Type("nonsense")
	typed.await("Invalid command")
	typed.Type("watch foo1 --rev 2 --prev-kv")
	typed.await("other\n")
	typed.interrupt()

	history := r.open("watch foo foo9 --rev 1 --prev-kv")
	history.await("end\n")
	history.interrupt()
}

func locksAndElections(r *reader) {
	first := r.open("lock mutex1")
	first.await("mutex1/")
	r.etcdctl("get mutex1 --prefix")
	second := r.open("lock mutex1")
	r.waiting("mutex1/", 2)
	first.interrupt()
	second.await("mutex1/")
	second.interrupt()
	r.etcdctl("get mutex1 --prefix")
	r.etcdctl("lock mutex1 echo held")
	r.etcdctl("lock mutex1 --ttl 5 -- sh -c 'echo $ETCD_LOCK_KEY $ETCD_LOCK_REV; exit 7'")

	leader := r.open("elect one p1")
	leader.await("p1\n")
	observer := r.open("elect one -l")
	observer.await("p1\n")
	next := r.open("elect one p2")
	r.waiting("one/", 2)
	leader.interrupt()
	next.await("p2\n")
	observer.await("p2\n")
	next.interrupt()
	observer.interrupt()
	r.etcdctl("get one --prefix")
	r.etcdctl("elect one")
}

func maintenance(r *reader) {
	for i := range 3 {
		r.etcdctl(fmt.Sprintf("put key%d value", i))
	}
	r.etcdctl("endpoint health")
	r.etcdctl("endpoint health --cluster -w json", mask{regexp.MustCompile(`"took":"[^"]*"`), `"took":"TIME"`})
	r.settled()
	r.etcdctl("endpoint status", statusText...)
	r.etcdctl("endpoint status -w json", statusMasks...)
	r.etcdctl("endpoint status -w table", append(statusText[:len(statusText):len(statusText)], tableMasks...)...)
	r.etcdctl("endpoint status -w fields", statusFields)
	r.etcdctl("endpoint status --cluster", statusText...)
	r.etcdctl("endpoint hashkv")
	r.etcdctl("endpoint hashkv --cluster -w json")
	r.etcdctl("endpoint hashkv --rev 3 -w table", tableMasks...)
	r.etcdctl("alarm list")
	r.etcdctl("alarm disarm -w json")
	r.etcdctl("defrag -w json")
	r.etcdctl("move-leader 1234")
}

var (
	// Fields of a status that depend on a server's files and its log.
	statusText = []mask{
		{regexp.MustCompile(`[\d.]+ [kMG]?B`), "SIZE"},
		{regexp.MustCompile(`\d+%`), "SHARE"},
		{regexp.MustCompile(`(true|false), (true|false), \d+, \d+, \d+`), "$1, $2, TERM, INDEX, INDEX"},
		{regexp.MustCompile(`(true|false) │ +(true|false) │ +\d+ │ +\d+ │ +\d+`), "$1 │ $2 │ TERM │ INDEX │ INDEX"},
	}
	// Columns are as wide as what is in them.
	tableMasks = []mask{
		{regexp.MustCompile(` +`), " "},
		{regexp.MustCompile(`─+`), "─"},
	}
	statusFields = mask{regexp.MustCompile(`"(DBSize|DBSizeInUse|RaftIndex|RaftTerm|RaftAppliedIndex|Leader|StorageSize.*)" : \d+`), `"$1" : 0`}
)

func limits(r *reader) {
	r.etcdctl("put fits " + strings.Repeat("x", 1000))
	r.etcdctl("put large " + strings.Repeat("x", 1600))
	r.etcdctl("get large")
	r.etcdctlWith("\nput a 1\nput b 2\nput c 3\n\n\n", "txn")
	r.etcdctlWith("\nput a 1\nput b 2\nput c 3\nput d 4\n\n\n", "txn")
	r.etcdctl("put '' empty")
	r.etcdctl("get ''")
	r.etcdctl("del ''")
}
