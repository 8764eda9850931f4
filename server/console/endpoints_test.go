package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/server"
)

func TestFilesAndHeaders(t *testing.T) {
	b := newBrowser(t, start(t, func(c *server.Config) { c.CORS = []string{"*"} }))
	for path, kind := range map[string]string{
		"/ui": "text/html; charset=utf-8", "/ui/": "text/html; charset=utf-8",
		"/ui/main.js":   "text/javascript; charset=utf-8",
		"/ui/style.css": "text/css; charset=utf-8", "/ui/icon.svg": "image/svg+xml", "/ui/api/status": "application/json",
		"/ui/api/none": "application/json",
	} {
		resp, body := b.do(http.MethodGet, path, nil, map[string]string{"Origin": "https://elsewhere.example"})
		require.Equal(t, kind, resp.Header.Get("Content-Type"), path)
		require.NotEmpty(t, body)
		policy := resp.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'; script-src 'self'; style-src 'self';", path)
		require.NotContains(t, policy, "unsafe")
		require.Contains(t, policy, "frame-ancestors 'none'")
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "DENY", resp.Header.Get("X-Frame-Options"))
		require.Equal(t, "no-referrer", resp.Header.Get("Referrer-Policy"))
		require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"), "--cors is not about the console")
	}
	for _, path := range []string{"/ui/none.js", "/ui/static/", "/ui/index.html", "/ui/../main.js", "/ui/api/none",
		"/uix"} {
		resp, _ := b.do(http.MethodGet, path, nil, nil)
		require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
	}
	resp, body := b.do(http.MethodGet, "/", nil, map[string]string{"Accept": "text/html,*/*;q=0.8"})
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "/ui/", resp.Request.URL.Path)
	require.Contains(t, body, "<title>sqlbrain</title>")
	for _, accept := range []string{"", "*/*", "application/json"} {
		resp, _ = b.do(http.MethodGet, "/", nil, map[string]string{"Accept": accept})
		require.Equal(t, http.StatusNotFound, resp.StatusCode, "etcd's answer, to %q", accept)
	}
	resp, _ = b.do(http.MethodPost, "/ui/main.js", nil, nil)
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

func TestStatus(t *testing.T) {
	b, c := open(t)
	put(t, c, "a", "1")
	put(t, c, "a", "2")
	_, err := c.Compact(t.Context(), 2)
	require.NoError(t, err)
	got := b.ok(b.ask("status"))
	require.Equal(t, "n1", got["name"])
	require.Equal(t, "v-test", got["product"])
	require.EqualValues(t, 3, got["revision"])
	require.EqualValues(t, 2, got["compact_revision"])
	require.EqualValues(t, 0, got["feed_lag"])
	require.Equal(t, got["member_id"], got["leader"])
	members := got["members"].([]any)
	require.Len(t, members, 1)
	require.Equal(t, "alive", members[0].(object2)["state"])
	values := got["metrics"].(object2)["values"].(object2)
	require.EqualValues(t, 2, values["puts"])
	require.Positive(t, values["started"])
}

// object2 is what encoding/json makes of an object inside another.
type object2 = map[string]any

func TestKeysByLevelAndPage(t *testing.T) {
	b, c := open(t)
	for i := range 25 {
		put(t, c, fmt.Sprintf("/app/%02d", i), "v")
		put(t, c, fmt.Sprintf("/other/%02d/x", i), "v")
	}
	names := func(params ...string) (out []string, next string) {
		got := b.ok(b.ask("keys", params...))
		for _, k := range got["keys"].([]any) {
			out = append(out, text(t, k.(object2)["name"]))
		}
		if got["next"] != nil {
			next = param(text(t, got["next"]))
		}
		return out, next
	}
	top, _ := names()
	require.Equal(t, []string{"/"}, top)
	level, _ := names("prefix", param("/"))
	require.Equal(t, []string{"/app/", "/other/"}, level)
	search, _ := names("prefix", param("/app/1"))
	require.Len(t, search, 10)

	var all []string
	next, pages := "", 0
	for {
		page, n := names("prefix", param("/other/"), "limit", "10", "after", next)
		all, pages = append(all, page...), pages+1
		require.LessOrEqual(t, len(page), 10)
		if next = n; n == "" {
			break
		}
	}
	require.Equal(t, 3, pages)
	require.Len(t, all, 25)
	require.Equal(t, "/other/24/", all[24])

	for _, bad := range [][]string{
		{"limit", "0"}, {"limit", "-1"}, {"limit", "501"}, {"limit", "many"}, {"limit", "99999999999999999999"},
		{"prefix", "%%"}, {"after", "a b"},
	} {
		status, out := b.ask("keys", bad...)
		require.Equal(t, http.StatusBadRequest, status, bad)
		require.Contains(t, out["error"], bad[0])
	}
}

func TestKeyIsShownWithItsLeaseAndValue(t *testing.T) {
	b, c := open(t)
	lease, err := c.Grant(t.Context(), 100)
	require.NoError(t, err)
	_, err = c.Put(t.Context(), "a", `{"x":1}`, clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	got := b.ok(b.ask("key", "key", param("a")))
	require.Equal(t, true, got["found"])
	require.Equal(t, false, got["may_write"])
	require.Equal(t, "{\n  \"x\": 1\n}", got["value"].(object2)["readable"])
	held := got["lease"].(object2)
	require.Equal(t, fmt.Sprintf("%x", lease.ID), held["id"])
	require.EqualValues(t, 100, held["granted_ttl"])
	require.Positive(t, held["ttl"])

	put(t, c, "broken", "k8s\x00\x0a\xff\xff")
	damaged := b.ok(b.ask("key", "key", param("broken")))["value"].(object2)
	require.Contains(t, damaged["note"], "damaged")
	require.Contains(t, damaged["hex"], "6b 38 73 00")

	require.Equal(t, false, b.ok(b.ask("key", "key", param("none")))["found"])
	status, out := b.ask("key")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "the parameter key is missing", out["error"])
}

func TestHistory(t *testing.T) {
	b, c := open(t)
	for i := range 5 {
		put(t, c, "a", fmt.Sprintf("first\n%d\n", i))
	}
	_, err := c.Delete(t.Context(), "a")
	require.NoError(t, err)
	var changes []string
	before := ""
	for {
		got := b.ok(b.ask("history", "key", param("a"), "limit", "2", "before", before))
		versions := got["versions"].([]any)
		require.LessOrEqual(t, len(versions), 2)
		for _, v := range versions {
			changes = append(changes, v.(object2)["change"].(string))
			require.NotNil(t, v.(object2)["diff"])
		}
		if got["next"] == nil {
			require.Equal(t, true, got["complete"])
			break
		}
		before = fmt.Sprint(int64(got["next"].(float64)))
	}
	require.Equal(t, []string{"deleted", "changed", "changed", "changed", "changed", "created"}, changes)

	_, err = c.Compact(t.Context(), 5)
	require.NoError(t, err)
	got := b.ok(b.ask("history", "key", param("a")))
	require.Len(t, got["versions"], 3)
	require.Equal(t, false, got["complete"])
	require.EqualValues(t, 5, got["compact_revision"])
	for _, bad := range [][]string{{"limit", "51"}, {"limit", "0"}, {"before", "-1"}, {"before", "x"}, {"key", ""}} {
		status, _ := b.ask("history", append([]string{"key", param("a")}, bad...)...)
		require.Equal(t, http.StatusBadRequest, status, bad)
	}
}

func TestHistoryOfValuesThatAreTheSame(t *testing.T) {
	b, c := open(t)
	long := strings.Repeat("\x00", 32<<10) // hex shows less of it
	for _, value := range []string{"", "", long, long, long + "\x01"} {
		put(t, c, "a", value)
	}
	versions := b.ok(b.ask("history", "key", param("a")))["versions"].([]any)
	var same []any
	for _, v := range versions {
		same = append(same, v.(object2)["same"])
	}
	require.Equal(t, []any{nil, true, nil, true, nil}, same)
}

func TestSizes(t *testing.T) {
	b, c := open(t)
	put(t, c, "/registry/pods/a", "12345")
	put(t, c, "/registry/pods/b", "12345")
	put(t, c, "x", "")
	got := b.ok(b.ask("sizes"))
	require.Equal(t, true, got["complete"])
	require.EqualValues(t, 3, got["keys"])
	require.EqualValues(t, 43, got["bytes"])
	first := got["groups"].([]any)[0].(object2)
	require.Equal(t, "/registry/pods/", text(t, first["prefix"]))
	require.EqualValues(t, 42, first["bytes"])
	require.EqualValues(t, 1, b.ok(b.ask("sizes", "prefix", param("x")))["keys"])
}
