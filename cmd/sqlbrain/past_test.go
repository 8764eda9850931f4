package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// jsonLines are the lines of JSON that a command prints.
func jsonLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one T
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		all = append(all, one)
	}
	return all
}

func TestHistoryListsVersionsWithTimes(t *testing.T) {
	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) {
		n := startNode(t, "--datastore", datastore)
		c, ctx := n.client(t), testContext(t)
		lease, err := c.Grant(ctx, 10_000)
		require.NoError(t, err)
		before := time.Now().Truncate(time.Millisecond)
		for i := range 3 {
			_, err = c.Put(ctx, "k", strings.Repeat("v", i), clientv3.WithLease(lease.ID))
			require.NoError(t, err)
		}
		_, err = c.Delete(ctx, "k")
		require.NoError(t, err)
		_, err = c.Put(ctx, "other", "")
		require.NoError(t, err)
		after := time.Now()

		list := func(args ...string) string {
			t.Helper()
			var got string
			answer := succeed(t, append([]string{"history", "k", "-o", "json", "--datastore", datastore}, args...)...).stdout
			for _, v := range jsonLines[versionLine](t, answer) {
				at, err := time.Parse(time.RFC3339, v.Time)
				require.NoError(t, err)
				require.False(t, at.Before(before) || at.After(after), v.Time)
				got += fmt.Sprintf("%d %s %d %d %t, ", v.Revision, v.Change, v.Version, v.Bytes, v.Lease != "")
			}
			return got
		}
		all := "5 deleted 0 0 false, 4 changed 3 2 true, 3 changed 2 1 true, 2 created 1 0 true, "
		require.Equal(t, all, list())
		require.Equal(t, all, list("--at", "0s"))
		require.Equal(t, all[strings.Index(all, "3 changed"):], list("--at", "3"))
		require.Equal(t, "5 deleted 0 0 false, 4 changed 3 2 true, ", list("--limit", "2"))
		table := strings.Split(succeed(t, "history", "k", "--datastore", datastore, "--limit=1").stdout, "\n")
		require.Equal(t, []string{"REVISION", "TIME", "CHANGE", "VERSION", "LEASE", "BYTES"}, strings.Fields(table[0]))
		require.Contains(t, table[1], "deleted")
		require.Empty(t, succeed(t, "history", "none", "-o", "json", "--datastore", datastore).stdout)

		future := time.Now().Add(time.Hour).Format(time.RFC3339)
		for at, want := range map[string]string{
			"99": "etcdserver: mvcc: required revision is a future revision: the newest is 6", "0": "revisions begin at 1",
			"1h": "time is before the first commit, which is of 20", future: "time is in the future", "noon": "neither a time",
		} {
			execute(t, "history", "k", "--at", at, "--datastore", datastore).requireRefused(t, "--at "+at, want)
		}
		_, err = c.Compact(ctx, 3)
		require.NoError(t, err)
		require.Equal(t, all[:strings.Index(all, "2 created")], list())
		for at, want := range map[string]string{
			"2":  "etcdserver: mvcc: required revision has been compacted: the first that can be read is 3",
			"1h": "etcdserver: mvcc: required revision has been compacted: history begins at revision 3 of 20",
		} {
			execute(t, "history", "k", "--at", at, "--datastore", datastore).requireRefused(t, "--at "+at, want)
		}
	})
}

func TestDiffListsWhatChanged(t *testing.T) {
	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) {
		n := startNode(t, "--datastore", datastore)
		c, ctx := n.client(t), testContext(t)
		put := func(key, value string) {
			t.Helper()
			_, err := c.Put(ctx, key, value)
			require.NoError(t, err)
		}
		remove := func(key string) {
			t.Helper()
			_, err := c.Delete(ctx, key)
			require.NoError(t, err)
		}
		put("/b/before", "1")
		for _, key := range []string{"changed", "deleted", "restored", "again", "stays"} {
			put("/a/"+key, "1")
		}
		const from = "7"
		put("/a/changed", "2")
		put("/a/changed", "3")
		remove("/a/deleted")
		put("/a/restored", "2")
		put("/a/restored", "1")
		remove("/a/again")
		put("/a/again", "1")
		put("/a/passing", "1")
		remove("/a/passing")
		put("/a/created", "1")
		put("/b/other", "1")
		const to = "17"
		put("/a/stays", "2")

		list := func(args ...string) string {
			t.Helper()
			var got string
			answer := succeed(t, append([]string{"diff", "-o", "json", "--datastore", datastore}, args...)...).stdout
			for _, d := range jsonLines[difference](t, answer) {
				require.NotEmpty(t, d.Time)
				got += fmt.Sprintf("%s %s %d, ", d.Key, d.Change, d.Revision)
			}
			return got
		}
		// The key /a/again is another one since it was created again.
		want := "/a/again changed 14, /a/changed changed 9, /a/created created 17, /a/deleted deleted 10, "
		require.Equal(t, want, list("--at", from, "--and", to, "/a/"))
		require.Equal(t, want+"/a/stays changed 19, ", list("--at", from, "--and", "0s", "/a/"))
		require.Equal(t, "/b/other created 18, ", list("--at", from, "/b/"))
		require.Equal(t, want+"/a/stays changed 19, /b/other created 18, ", list("--at", from))
		require.Empty(t, list("--at", from, "--and", from))
		execute(t, "diff", "--at", to, "--and", from, "--datastore", datastore).requireRefused(t, "later than --and")
		_, err := c.Compact(ctx, 8)
		require.NoError(t, err)
		execute(t, "diff", "--at", from, "--datastore", datastore).requireRefused(t, "has been compacted")
		require.Equal(t, "/a/changed changed 9, ", list("--at", "8", "--and", "9"))
	})
}

// TestDiffPrintsDeletedObjects as kubectl create takes them.
func TestDiffPrintsDeletedObjects(t *testing.T) {
	datastore := sqliteURL(t)
	n := startNode(t, "--datastore", datastore)
	c, ctx := n.client(t), testContext(t)
	object := func(kind, more string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"web","uid":"u","resourceVersion":"7"%s}}`,
			kind, more)
	}
	var ops []clientv3.Op
	for key, value := range map[string]string{
		"/registry/configmaps/shop/web": object("ConfigMap", `,"namespace":"shop"`),
		"/registry/namespaces/web":      object("Namespace", ""),
		"/registry/pods/shop/web": object("Pod", `,"namespace":"shop","ownerReferences":[{"kind":"ReplicaSet",
			"name":"web\u001b","controller":true}]`),
		"/registry/secrets/shop/web": "k8s:enc:aescbc:v1:key:x",
		"/registry/ranges/x":         "no object",
	} {
		ops = append(ops, clientv3.OpPut(key, value))
	}
	_, err := c.Txn(ctx).Then(ops...).Commit()
	require.NoError(t, err)
	_, err = c.Delete(ctx, "/registry/", clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = c.Put(ctx, "/registry/configmaps/shop/new", object("ConfigMap", ""))
	require.NoError(t, err)

	got := succeed(t, "diff", "--at", "2", "--yaml", "/registry/", "--datastore", datastore).stdout
	var lines []string
	for line := range strings.Lines(got) {
		if _, after, ok := strings.Cut(line, "deleted at revision 3, "); ok {
			line = strings.Replace(line, strings.TrimSpace(after), "TIME", 1)
		}
		lines = append(lines, line)
	}
	require.Equal(t, `---
# /registry/namespaces/web, deleted at revision 3, TIME
apiVersion: v1
kind: Namespace
metadata:
  name: web
---
# /registry/configmaps/shop/web, deleted at revision 3, TIME
apiVersion: v1
kind: ConfigMap
metadata:
  name: web
  namespace: shop
# left out: /registry/pods/shop/web: "ReplicaSet web\x1b makes it again"
# left out: /registry/ranges/x: it is no object of Kubernetes in protobuf or JSON
# left out: /registry/secrets/shop/web: kube-apiserver has encrypted it
`, strings.Join(lines, ""))
	table := succeed(t, "diff", "--at", "2", "/registry/configmaps/", "--datastore", datastore).stdout
	require.Regexp(t, `(?m)^deleted +3 +20\S+Z +v1 ConfigMap +shop/web +/registry/configmaps/shop/web$`, table)
}
