package console_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestDetailsOfKeys(t *testing.T) {
	b, c := open(t)
	lease, err := c.Grant(t.Context(), 100)
	require.NoError(t, err)
	_, err = c.Put(t.Context(), "/a", `{"apiVersion":"v1","kind":"Thing"}`, clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	put(t, c, "/b", "")
	for i := range 3 {
		put(t, c, fmt.Sprintf("/c/%d", i), "v")
	}
	plain := b.ok(b.ask("keys", "prefix", param("/")))["keys"].([]any)
	require.NotContains(t, plain[0], "bytes")
	require.Equal(t, fmt.Sprintf("%x", lease.ID), plain[0].(object2)["lease"])
	keys := b.ok(b.ask("keys", "prefix", param("/"), "details", "1"))["keys"].([]any)
	require.Len(t, keys, 3)
	require.EqualValues(t, 34, keys[0].(object2)["bytes"])
	require.Equal(t, "v1 Thing", keys[0].(object2)["kind"])
	require.EqualValues(t, 0, keys[1].(object2)["bytes"])
	require.Equal(t, "empty", keys[1].(object2)["kind"])
	require.EqualValues(t, 3, keys[2].(object2)["count"])
}

func TestSearch(t *testing.T) {
	b, c := open(t)
	for i := range 130 {
		put(t, c, fmt.Sprintf("/pods/Web-%03d", i), "v")
	}
	put(t, c, "/other/web", "v")
	got := b.ok(b.ask("search", "text", param("wEB-"), "prefix", param("/pods/")))
	require.Len(t, got["keys"], 100)
	rest := b.ok(b.ask("search", "text", param("wEB-"), "prefix", param("/pods/"), "after", param(text(t, got["next"]))))
	require.Len(t, rest["keys"], 30)
	require.Nil(t, rest["next"])
	require.Equal(t, "/pods/Web-129", text(t, rest["keys"].([]any)[29].(object2)["name"]))
	require.Len(t, b.ok(b.ask("search", "text", param("r/web")))["keys"], 1)
	status, out := b.ask("search")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "the parameter text is missing", out["error"])
}

func TestValueAtARevisionAndCompared(t *testing.T) {
	b, c := open(t)
	put(t, c, "a", "one\n") // revision 2
	put(t, c, "a", "two\n")
	put(t, c, "a", "one\n")
	_, err := c.Delete(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "two\n", b.ok(b.ask("key", "key", param("a"), "revision", "3"))["value"].(object2)["text"])
	require.Equal(t, false, b.ok(b.ask("key", "key", param("a")))["found"])
	got := b.ok(b.ask("compare", "key", param("a"), "from", "2", "to", "3"))
	require.Equal(t, false, got["same"])
	require.Len(t, got["diff"].(object2)["hunks"].([]any)[0].(object2)["lines"], 2)
	require.Equal(t, true, b.ok(b.ask("compare", "key", param("a"), "from", "2", "to", "4"))["same"])
	gone := b.ok(b.ask("compare", "key", param("a"), "from", "4"))
	require.Equal(t, false, gone["to"].(object2)["found"])
	require.EqualValues(t, 5, gone["to"].(object2)["revision"])

	resp, body := b.do(http.MethodGet, "/ui/api/raw?revision=3&key="+param("a"), nil, nil)
	require.Equal(t, "two\n", body)
	require.Equal(t, "attachment", resp.Header.Get("Content-Disposition"))
	require.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"))
	status, _ := b.ask("raw", "key", param("a"))
	require.Equal(t, http.StatusNotFound, status)
	put(t, c, "secret", `{"apiVersion":"v1","kind":"Secret","data":{"password":"aHVudGVyMg=="}}`)
	status, out := b.ask("raw", "key", param("secret"))
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "what a Secret holds is not shown", out["error"])

	status, out = b.ask("key", "key", param("a"), "revision", "99")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "etcdserver: mvcc: required revision is a future revision", out["error"])
	_, err = c.Compact(t.Context(), 4)
	require.NoError(t, err)
	_, out = b.ask("compare", "key", param("a"), "from", "2", "to", "4")
	require.Equal(t, "etcdserver: mvcc: required revision has been compacted", out["error"])
}

func TestLeasesAndTheirKeys(t *testing.T) {
	b, c := open(t)
	var ids []clientv3.LeaseID
	for range 60 {
		lease, err := c.Grant(t.Context(), 100)
		require.NoError(t, err)
		ids = append(ids, lease.ID)
	}
	for i := range 30 {
		_, err := c.Put(t.Context(), fmt.Sprintf("k%02d", i), "v", clientv3.WithLease(ids[0]))
		require.NoError(t, err)
	}
	first := b.ok(b.ask("leases"))
	require.EqualValues(t, 60, first["count"])
	require.Len(t, first["leases"], 50)
	rest := b.ok(b.ask("leases", "after", first["next"].(string)))
	require.Len(t, rest["leases"], 10)
	require.Nil(t, rest["next"])
	one := b.ok(b.ask("leases", "id", fmt.Sprintf("%x", ids[0])))["leases"].([]any)[0].(object2)
	require.EqualValues(t, 30, one["count"])
	require.Len(t, one["keys"], 30)
	require.EqualValues(t, 100, one["granted_ttl"])
	for _, l := range append(first["leases"].([]any), rest["leases"].([]any)...) {
		require.LessOrEqual(t, len(l.(object2)["keys"].([]any)), 20)
	}
	status, _ := b.ask("leases", "id", "many")
	require.Equal(t, http.StatusBadRequest, status)
}

func TestWatchersOfTheNode(t *testing.T) {
	b, c := open(t)
	for range 2 {
		<-c.Watch(t.Context(), "/pods/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	}
	<-c.Watch(t.Context(), "one", clientv3.WithCreatedNotify())
	got := b.ok(b.ask("watchers"))
	require.Equal(t, "n1", got["node"])
	require.EqualValues(t, 2, got["count"])
	ranges := got["ranges"].([]any)
	require.Equal(t, "/pods/", text(t, ranges[0].(object2)["key"]))
	require.Equal(t, "/pods0", text(t, ranges[0].(object2)["range_end"]))
	require.EqualValues(t, 2, ranges[0].(object2)["watchers"])
	require.Equal(t, "one", text(t, ranges[1].(object2)["key"]))
}

func TestWatchSendsLines(t *testing.T) {
	b, c := open(t)
	put(t, c, "/a/1", "before")
	resp, err := b.client.Get(b.address + "/ui/api/watch?prefix=1&key=" + param("/a/"))
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	require.Equal(t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	next := func() (out object) {
		require.True(t, lines.Scan(), lines.Err())
		require.NoError(t, json.Unmarshal(lines.Bytes(), &out))
		return out
	}
	require.EqualValues(t, 2, next()["revision"])
	put(t, c, "/b", "elsewhere")
	put(t, c, "/a/1", `{"apiVersion":"v1","kind":"Secret","data":{"password":"aHVudGVyMg=="}}`)
	_, err = c.Delete(t.Context(), "/a/1")
	require.NoError(t, err)
	changed := next()
	require.Equal(t, "changed", changed["change"])
	require.EqualValues(t, 4, changed["revision"])
	require.Equal(t, "v1 Secret", changed["kind"])
	require.Contains(t, changed["text"], "hidden: 7 bytes")
	require.NotContains(t, changed["text"], "aHVudGVyMg")
	require.Equal(t, "deleted", next()["change"])

	// A new start, from a revision on.
	again, err := b.client.Get(b.address + "/ui/api/watch?revision=4&key=" + param("/a/1"))
	require.NoError(t, err)
	lines = bufio.NewScanner(again.Body)
	next()
	require.EqualValues(t, 4, next()["revision"])
	require.NoError(t, again.Body.Close())

	_, err = c.Compact(t.Context(), 5)
	require.NoError(t, err)
	old, err := b.client.Get(b.address + "/ui/api/watch?revision=2&key=" + param("/a/1"))
	require.NoError(t, err)
	lines = bufio.NewScanner(old.Body)
	next()
	require.Contains(t, next()["error"], "compacted")
	require.False(t, lines.Scan())
	require.NoError(t, old.Body.Close())
	status, out := b.ask("watch")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "the parameter key is missing", out["error"])
}

func TestRemoveOnlyWhatThePreviewHad(t *testing.T) {
	b, c := open(t, writing)
	for i := range 120 {
		put(t, c, fmt.Sprintf("/old/%03d", i), "v")
	}
	put(t, c, "/older", "stays")
	preview := b.ok(b.ask("removal", "prefix", param("/old/")))
	require.EqualValues(t, 120, preview["count"])
	require.Len(t, preview["keys"], 100)
	require.Equal(t, true, preview["may_write"])

	put(t, c, "/old/new", "v")
	body := object{"prefix": []byte("/old/"), "revision": preview["revision"]}
	status, out := b.post("remove", body)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, out["error"], "since the preview")
	body["revision"] = b.ok(b.ask("removal", "prefix", param("/old/")))["revision"]
	require.EqualValues(t, 121, b.ok(b.post("remove", body))["deleted"])
	left, err := c.Get(t.Context(), "/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, left.Kvs, 1)

	for _, bad := range []object{{"prefix": []byte{}, "revision": 5}, {"prefix": []byte("/"), "revision": 0}} {
		status, _ := b.post("remove", bad)
		require.Equal(t, http.StatusBadRequest, status)
	}
	status, out = b.ask("removal")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], "prefix is missing")
}

func TestSamplesAreKept(t *testing.T) {
	address := start(t)
	put(t, etcd(t, address), "a", "v")
	b := newBrowser(t, address)
	eventually.True(t, "one sample, and that of now",
		func() bool { return len(b.ok(b.ask("samples"))["rows"].([]any)) >= 2 })
	got := b.ok(b.ask("samples", "seconds", "0"))
	columns := got["columns"].([]any)
	rows := got["rows"].([]any)
	row := rows[len(rows)-1].([]any)
	require.Len(t, row, len(columns))
	at := func(name string) any {
		for i, c := range columns {
			if c == name {
				return row[i]
			}
		}
		return nil
	}
	require.EqualValues(t, 2, at("revision"))
	require.EqualValues(t, 1, at("puts"))
	require.Positive(t, at("started"))
	require.Contains(t, columns, "commit.count")
	require.True(t, strings.HasPrefix(columns[0].(string), "time"))
}

// TestUsersSeeOnlyWhatTheyMay: alice may read /app/ and change /app/mine/.
func TestUsersSeeOnlyWhatTheyMay(t *testing.T) {
	address := start(t)
	root := enableAuth(t, address)
	put(t, root, "/secret", "hidden")
	lease, err := root.Grant(t.Context(), 100)
	require.NoError(t, err)
	_, err = root.Put(t.Context(), "/secret/leased", "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	b := newBrowser(t, address)
	paths := []string{"search?text=" + param("s"), "raw?key=" + param("/secret"), "watch?key=" + param("/secret"),
		"compare?key=" + param("/secret"), "watchers", "leases", "removal?prefix=" + param("/secret")}
	for _, path := range append(paths, "samples") {
		resp, body := b.do(http.MethodGet, "/ui/api/"+path, nil, nil)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, resp.StatusCode, "%s: %s", path, body)
	}
	b.login("alice", "alicepw")
	for _, path := range paths {
		resp, body := b.do(http.MethodGet, "/ui/api/"+path, nil, nil)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, "%s: %s", path, body)
	}
	status, out := b.ask("leases", "id", fmt.Sprintf("%x", lease.ID))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "etcdserver: permission denied", out["leases"].([]any)[0].(object2)["error"])
	require.Empty(t, out["leases"].([]any)[0].(object2)["keys"])
}
