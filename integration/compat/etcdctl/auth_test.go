package etcdctl

import (
	"strings"

	"github.com/stretchr/testify/require"
)

// authScript is what administrators do, and what users then may: the session of the
// etcd articles, and more.
var authScript = []step{
	{args: "auth status"},
	{args: "auth enable"},
	{args: "--user=root:root get hello"},
	{args: "user add root:root"},
	{args: "user add root:root"},
	{args: "user get root"},
	{args: "auth enable"}, // makes the role root itself
	{args: "auth status"},
	{args: "auth status --user=root:root"},
	{args: "put hello world"},
	{args: "get hello"},
	{args: "--user=root:wrong get hello"},
	{args: "--user=nobody:root get hello"},
	{args: "--user=root:root put hello world"},
	{args: "--user root --password root get hello"},
	{args: "user add alice:alice --user root:root"},
	{args: "user add bob --no-password --user root:root"},
	{args: "user add --interactive=false carol --user root:root", input: "carol\n"},
	{args: "user list --user root:root"},
	{args: "--user=alice:alice put hello alice"},
	{args: "--user=alice:alice get hello"},
	{args: "--user=alice:alice user list"},
	{args: "--user=alice:alice user get alice"},
	{args: "--user=alice:alice user get root"},
	{args: "--user=bob:bob get hello"},
	{args: "role add admin --user root:root"},
	{args: "role add admin --user root:root"},
	{args: "role grant-permission admin readwrite hello helly --user root:root"},
	{args: "role grant-permission admin read /pods/ --prefix=true --user root:root"},
	{args: "role grant-permission admin write zz --from-key --user root:root"},
	{args: "role grant-permission admin write nothing nothing --user root:root"},
	{args: "role grant-permission nobody read hello --user root:root"},
	{args: "role get admin --user root:root"},
	{args: "role get root --user root:root"},
	{args: "role list --user root:root"},
	{args: "user grant-role alice admin --user root:root"},
	{args: "user grant-role alice nobody --user root:root"},
	{args: "user get alice --user root:root"},
	{args: "user get alice --detail --user root:root"},
	{args: "role get admin --user alice:alice"},
	{args: "--user=alice:alice put hello alice"},
	{args: "--user=alice:alice get hello"},
	{args: "--user=alice:alice get hello helly"},
	{args: "--user=alice:alice get hello hellz"},
	{args: "--user=alice:alice get /pods/ --prefix"},
	{args: "--user=alice:alice put /pods/a 1"},
	{args: "--user=alice:alice put zzz 1"},
	{args: "--user=alice:alice get zzz"},
	{args: "--user=alice:alice del zz --from-key"},
	{args: "--user=alice:alice txn", input: "value(\"hello\") = \"alice\"\n\nput hello again\n\nput other x\n\n"},
	{args: "--user=alice:alice txn", input: "value(\"hello\") = \"alice\"\n\nput hello again\n\n\n"},
	{args: "--user=alice:alice watch hello --rev 2", until: "again"},
	{args: "--user=alice:alice watch other"},
	{args: "watch hello"},
	{args: "--user=alice:alice lease grant 500", mask: leaseMasks},
	{args: "--user=alice:alice put hello leased --lease LEASE"},
	{args: "--user=alice:alice lease timetolive LEASE --keys", mask: leaseMasks},
	{args: "--user=alice:alice lease list", mask: leaseMasks},
	{args: "--user=alice:alice lease keep-alive --once LEASE", mask: leaseMasks},
	{args: "lease revoke LEASE", mask: leaseMasks},
	{args: "--user=alice:alice lease revoke LEASE", mask: leaseMasks},
	{args: "--user=alice:alice compaction 2"},
	{args: "--user=alice:alice defrag"},
	{args: "--user=alice:alice alarm list"},
	{args: "--user=alice:alice alarm disarm"},
	{args: "--user=alice:alice endpoint hashkv"},
	{args: "--user=alice:alice endpoint health"},
	{args: "--user=alice:alice endpoint status -w json", mask: statusMasks},
	{args: "endpoint status"},
	{args: "endpoint health"},
	{args: "member list"},
	{args: "--user=alice:alice member list", mask: memberMasks},
	{args: "--user=alice:alice member remove 1"},
	{args: "--user=alice:alice lock hello echo held"},
	{args: "--user=alice:alice lock other echo held"},
	{args: "user passwd alice --interactive=false --user root:root", input: "new\n"},
	{args: "--user=alice:alice get hello"},
	{args: "--user=alice:new get hello"},
	{args: "role revoke-permission admin hello helly --user root:root"},
	{args: "role revoke-permission admin hello --user root:root"},
	{args: "--user=alice:new get hello"},
	{args: "user revoke-role alice admin --user root:root"},
	{args: "user revoke-role alice admin --user root:root"},
	{args: "role delete admin --user root:root"},
	{args: "role delete root --user root:root"},
	{args: "user delete alice --user root:root"},
	{args: "user delete root --user root:root"},
	{args: "--user=alice:new get hello"},
	{args: "auth disable"},
	{args: "auth disable --user root:root"},
	{args: "auth status"},
	{args: "--user=root:root get hello"},
	{args: "get hello"},
	{args: "user delete root"},
	{args: "user list"},
}

// users runs the script, which must show what it is for.
func users(r *reader) {
	r.script(authScript)
	denied := 0
	for _, e := range r.seen {
		if strings.Contains(e.Back.Stderr, "permission denied") {
			denied++
		}
	}
	require.GreaterOrEqual(r.t, denied, 10, "commands that were denied")
}
