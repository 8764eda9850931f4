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

// TestTextsAreNotEscapedForHTML: an escape of six bytes for each of them would make answers large.
func TestTextsAreNotEscapedForHTML(t *testing.T) {
	b, c := open(t)
	put(t, c, "k", "<>&")
	for path, line := range map[string]int{"key?": 1, "watch?revision=2&": 2} {
		resp, err := b.client.Get(b.address + "/ui/api/" + path + "key=" + param("k"))
		require.NoError(t, err)
		lines := bufio.NewScanner(resp.Body)
		for range line {
			require.True(t, lines.Scan(), lines.Err())
		}
		require.Contains(t, lines.Text(), "<>&", path)
		require.NoError(t, resp.Body.Close())
	}
}

// TestDeleteAllBelowAPrefixAfterAPreview of integration/compat/console has what is removed.
func TestRemoveNeedsAPrefixAndAPreview(t *testing.T) {
	b, c := open(t, writing)
	put(t, c, "/old", "stays")
	for _, bad := range []object{{"prefix": []byte{}, "revision": 5}, {"prefix": []byte("/"), "revision": 0}} {
		status, _ := b.post("remove", bad)
		require.Equal(t, http.StatusBadRequest, status)
	}
	status, out := b.ask("removal")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], "prefix is missing")
	left, err := c.Get(t.Context(), "/old")
	require.NoError(t, err)
	require.Len(t, left.Kvs, 1)
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
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, "%s: %s", path, body)
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
