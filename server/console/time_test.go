package console_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/server/replica"
)

// TestTimesOfCommits: pages show when revisions were committed, and take a time for a revision.
func TestTimesOfCommits(t *testing.T) {
	b, c := open(t)
	before := time.Now().Truncate(time.Millisecond)
	put(t, c, "a", "one")
	put(t, c, "a", "two")
	_, err := c.Delete(t.Context(), "a")
	require.NoError(t, err)
	after := time.Now()
	during := func(at any) {
		t.Helper()
		parsed, err := time.Parse(time.RFC3339, at.(string))
		require.NoError(t, err)
		require.False(t, parsed.Before(before) || parsed.After(after), "%s", at)
	}
	for _, v := range b.ok(b.ask("history", "key", param("a")))["versions"].([]any) {
		during(v.(object2)["time"])
	}
	during(b.ok(b.ask("key", "key", param("a"), "revision", "3"))["meta"].(object2)["time"])
	resp, err := b.client.Get(b.address + "/ui/api/watch?revision=2&key=" + param("a"))
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	lines := json.NewDecoder(resp.Body)
	for i := range 4 {
		var line object
		require.NoError(t, lines.Decode(&line))
		if i > 0 { // the first one is the start
			during(line["time"])
		}
	}

	got := b.ok(b.ask("key", "key", param("a"), "revision", "0s"))
	require.EqualValues(t, 4, got["at"])
	require.Equal(t, false, got["found"])
	status, out := b.ask("key", "key", param("a"), "revision", before.Add(-time.Hour).Format(time.RFC3339))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], "sqlbrain: time is before the first commit")
	status, out = b.ask("compare", "key", param("a"), "from", after.Add(time.Hour).Format(time.RFC3339))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], "sqlbrain: time is in the future")
	status, out = b.ask("raw", "key", param("a"), "revision", "yesterday")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], `"yesterday" is neither a time`)
	_, err = c.Compact(t.Context(), 3)
	require.NoError(t, err)
	status, out = b.ask("compare", "key", param("a"), "from", "1h")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"],
		"etcdserver: mvcc: required revision has been compacted: history begins at revision 3 of 20")
}

// TestATimeStandsForItsRevision whose commits are an hour apart.
func TestATimeStandsForItsRevision(t *testing.T) {
	hours := time.Now().Add(-10 * time.Hour).Truncate(time.Hour)
	address, _ := startReplicaWith(t, func(c *replica.Config) {
		c.CommitClock = func() time.Time { hours = hours.Add(time.Hour); return hours }
	})
	first := hours.Add(time.Hour)
	b, c := newBrowser(t, address), etcd(t, address)
	put(t, c, "a", "one")
	put(t, c, "a", "two")
	at := first.Add(30 * time.Minute).Format(time.RFC3339)
	require.Equal(t, "one", b.ok(b.ask("key", "key", param("a"), "revision", at))["value"].(object2)["text"])
	got := b.ok(b.ask("compare", "key", param("a"), "from", at))
	require.EqualValues(t, 2, got["from"].(object2)["revision"])
	require.EqualValues(t, 3, got["to"].(object2)["revision"])
}

// TestRestoreAVersion writes the value of an older revision, if the key still is as it was seen.
func TestRestoreAVersion(t *testing.T) {
	b, c := open(t, writing)
	lease, err := c.Grant(t.Context(), 1000)
	require.NoError(t, err)
	put(t, c, "a", "one")
	_, err = c.Put(t.Context(), "a", "two", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	restore := func(revision, seen int64) (int, object) {
		return b.post("restore", object{"key": []byte("a"), "revision": revision, "mod_revision": seen})
	}
	value := func() string {
		res, err := c.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Len(t, res.Kvs, 1)
		return string(res.Kvs[0].Value)
	}
	for _, seen := range []int64{2, 0, 9} {
		status, out := restore(2, seen)
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, "the key has changed since it was loaded: load it again", out["error"])
	}
	require.Equal(t, "two", value())
	require.EqualValues(t, 4, b.ok(restore(2, 3))["revision"])
	require.Equal(t, "one", value())
	left, err := c.TimeToLive(t.Context(), lease.ID, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Len(t, left.Keys, 1, "the lease stays")

	_, err = c.Delete(t.Context(), "a")
	require.NoError(t, err)
	status, _ := restore(3, 4)
	require.Equal(t, http.StatusConflict, status, "it was deleted since")
	status, _ = restore(5, 0)
	require.Equal(t, http.StatusNotFound, status, "it did not exist then")
	status, _ = restore(0, 0)
	require.Equal(t, http.StatusBadRequest, status)
	b.ok(restore(3, 0))
	require.Equal(t, "two", value())
}
