package console_test

import (
	"errors"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/coder"
)

// changes are all that can be changed, in an order in which root may do it.
var changes = []struct {
	path string
	body object
}{
	{"put", object{"key": []byte("/app/new"), "value": []byte("v"), "mod_revision": 0}},
	{"delete", object{"key": []byte("/app/a"), "mod_revision": 2}},
	{"restore", object{"key": []byte("/app/a"), "revision": 2, "mod_revision": 0}},
	{"remove", object{"prefix": []byte("/none/"), "revision": 1}},
	{"access/user-add", object{"user": "u", "password": "p"}},
	{"access/user-password", object{"user": "u", "password": "q"}},
	{"access/role-add", object{"role": "r"}},
	{"access/role-grant", object{"role": "r", "type": "read", "key": []byte("/a/"), "range_end": []byte("/a0")}},
	{"access/user-grant", object{"user": "u", "role": "r"}},
	{"access/user-revoke", object{"user": "u", "role": "r"}},
	{"access/role-revoke", object{"role": "r", "key": []byte("/a/"), "range_end": []byte("/a0")}},
	{"access/role-delete", object{"role": "r"}},
	{"access/user-delete", object{"user": "u"}},
}

func TestConsoleIsReadOnlyWithoutAuthentication(t *testing.T) {
	b, c := open(t)
	put(t, c, "/app/a", "1")
	require.Equal(t, false, b.ok(b.ask("session"))["may_write"])
	for _, change := range changes {
		status, out := b.post(change.path, change.body)
		require.Equal(t, http.StatusForbidden, status, change.path)
		require.Contains(t, out["error"], "read-only")
	}
	res, err := c.Get(t.Context(), "/app/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, res.Kvs, 1)
	users, err := c.UserList(t.Context())
	require.NoError(t, err)
	require.Empty(t, users.Users)
}

func TestConsoleWritePermitsChangesWithoutAuthentication(t *testing.T) {
	address := start(t, writing)
	put(t, etcd(t, address), "/app/a", "1")
	b := newBrowser(t, address)
	require.Equal(t, true, b.ok(b.ask("session"))["may_write"])
	require.Equal(t, true, b.ok(b.ask("key", "key", param("/app/a")))["may_write"])
	require.Equal(t, true, b.ok(b.ask("access"))["may_edit"])
	for _, change := range changes {
		b.ok(b.post(change.path, change.body))
	}
}

// enableAuth makes root, and alice who may read /app/ and write /app/mine/.
func enableAuth(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	c, ctx := etcd(t, address), t.Context()
	put(t, c, "/app/a", "1")
	put(t, c, "/app/mine/a", "1")
	put(t, c, "/secret", "1")
	var errs []error
	add := func(_ any, err error) { errs = append(errs, err) }
	add(c.UserAdd(ctx, "root", "rootpw"))
	add(c.UserGrantRole(ctx, "root", "root"))
	add(c.UserAdd(ctx, "alice", "alicepw"))
	add(c.RoleAdd(ctx, "app"))
	add(c.RoleGrantPermission(ctx, "app", "/app/", "/app0", clientv3.PermissionType(clientv3.PermRead)))
	add(c.RoleGrantPermission(ctx, "app", "/app/mine/", "/app/mine0", clientv3.PermissionType(clientv3.PermReadWrite)))
	add(c.UserGrantRole(ctx, "alice", "app"))
	add(c.AuthEnable(ctx))
	for _, err := range errs {
		require.NoError(t, err)
	}
	return etcd(t, address, "root", "rootpw")
}

func TestAuthenticationHidesEverythingWithoutLogin(t *testing.T) {
	address := start(t, writing)
	enableAuth(t, address)
	b := newBrowser(t, address)
	session := b.ok(b.ask("session"))
	require.Equal(t, true, session["auth_enabled"])
	require.Equal(t, false, session["may_write"])
	for _, path := range []string{"status", "members", "doctor", "sizes", "keys", "key?key=" + param("/app/a"),
		"history?key=" + param("/app/a"), "access"} {
		resp, body := b.do(http.MethodGet, "/ui/api/"+path, nil, nil)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
		require.JSONEq(t, `{"error":"etcdserver: user name is empty"}`, body, path)
	}
	for _, change := range changes {
		status, _ := b.post(change.path, change.body)
		require.Equal(t, http.StatusUnauthorized, status, change.path)
	}
	status, out := b.post("login", object{"name": "alice", "password": "wrong"})
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, "etcdserver: authentication failed, invalid user ID or password", out["error"])
}

func TestUserSeesAndChangesWhatRolesPermit(t *testing.T) {
	address := start(t)
	c := enableAuth(t, address)
	b := newBrowser(t, address)
	b.login("alice", "alicepw")
	session := b.ok(b.ask("session"))
	require.Equal(t, "alice", session["user"])
	require.Equal(t, false, session["root"])
	require.Len(t, session["permissions"], 2)

	b.ok(b.ask("status"))
	b.ok(b.ask("keys", "prefix", param("/app/")))
	b.ok(b.ask("history", "key", param("/app/a")))
	b.ok(b.ask("sizes", "prefix", param("/app/")))
	require.Equal(t, false, b.ok(b.ask("key", "key", param("/app/a")))["may_write"])
	mine := b.ok(b.ask("key", "key", param("/app/mine/a")))
	require.Equal(t, true, mine["may_write"])
	denied := func(status int, out object) {
		t.Helper()
		require.Equal(t, http.StatusForbidden, status)
		require.Equal(t, "etcdserver: permission denied", out["error"])
	}
	denied(b.ask("keys"))
	denied(b.ask("sizes"))
	denied(b.ask("key", "key", param("/secret")))
	denied(b.ask("history", "key", param("/secret")))
	for _, change := range changes {
		denied(b.post(change.path, change.body))
	}
	access := b.ok(b.ask("access"))
	require.Equal(t, false, access["may_edit"])
	require.Len(t, access["users"], 1, "of the users alice sees alice")
	require.Len(t, access["roles"], 1)

	b.ok(b.post("put", object{"key": []byte("/app/mine/a"), "value": []byte("2"), "mod_revision": 3}))
	status, out := b.post("put", object{"key": []byte("/app/mine/a"), "value": []byte("3"), "mod_revision": 3})
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, out["error"], "changed since it was loaded")
	res, err := c.Get(t.Context(), "/app/mine/a")
	require.NoError(t, err)
	require.Equal(t, "2", string(res.Kvs[0].Value))

	stolen := newBrowser(t, address)
	stolen.client.Jar = jarOf(t, address, b)
	stolen.ok(stolen.ask("status"))
	b.ok(b.post("logout", object{}))
	status, _ = b.ask("status")
	require.Equal(t, http.StatusUnauthorized, status)
	status, out = stolen.ask("status")
	require.Equal(t, http.StatusUnauthorized, status, "the server has made the token void")
	require.Equal(t, "etcdserver: invalid auth token", out["error"])
	b.ok(b.post("logout", object{})) // no user is logged in
}

// jarOf returns a copy of a browser's cookies.
func jarOf(t *testing.T, address string, b *browser) http.CookieJar {
	t.Helper()
	u, err := url.Parse(address + "/ui/")
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	cookies := b.client.Jar.Cookies(u)
	for _, c := range cookies {
		c.Path = "/ui/"
	}
	require.Len(t, cookies, 1)
	jar.SetCookies(u, cookies)
	return jar
}

func TestLoginHasAnAbsoluteLifetime(t *testing.T) {
	address, node := startReplica(t)
	enableAuth(t, address)
	b := newBrowser(t, address)
	began := time.Now()
	b.login("alice", "alicepw")
	u, err := url.Parse(address + "/ui/")
	require.NoError(t, err)
	_, token, _ := strings.Cut(b.client.Jar.Cookies(u)[0].Value, ":")
	row, found, err := node.Auth.LookupToken(t.Context(), coder.HashToken(token))
	require.NoError(t, err)
	require.True(t, found)
	require.GreaterOrEqual(t, row.Until, began.Add(12*time.Hour).Unix())
	require.LessOrEqual(t, row.Until, time.Now().Add(12*time.Hour).Unix())
}

func TestRootChangesUsersAndRoles(t *testing.T) {
	address := start(t)
	enableAuth(t, address)
	b := newBrowser(t, address)
	b.login("root", "rootpw")
	require.Len(t, b.ok(b.ask("access"))["users"], 2)
	for _, change := range changes {
		b.ok(b.post(change.path, change.body))
	}
	status, out := b.post("access/user-delete", object{"user": "u"})
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "etcdserver: user name not found", out["error"])
	for path, body := range map[string]object{
		"access/role-grant":    {"role": "app", "type": "all"},
		"access/user-password": {"user": "alice"},
		"access/role-add":      {"role": "r", "sudo": true},
	} {
		status, _ = b.post(path, body)
		require.Equal(t, http.StatusBadRequest, status, path)
	}
	// A changed password ends the logins of its user.
	alice := newBrowser(t, address)
	alice.login("alice", "alicepw")
	b.ok(b.post("access/user-password", object{"user": "alice", "password": "other"}))
	status, _ = alice.ask("status")
	require.Equal(t, http.StatusUnauthorized, status)
	session := alice.ok(alice.ask("session"))
	require.Empty(t, session["user"])
	require.Equal(t, "etcdserver: invalid auth token", session["problem"])
}

// What the node knows is shown while it cannot ask anybody, and no more.
func TestOverviewOfANodeThatDoesNotServeHidesTheReason(t *testing.T) {
	cause := errors.New("no route to db.internal:3306")
	address, node := startReplica(t, writing)
	b := newBrowser(t, address)
	node.StopServing(cause)
	session, status := b.ok(b.ask("session")), b.ok(b.ask("status"))
	require.Equal(t, false, session["auth_enabled"])
	require.Equal(t, false, session["may_write"])
	require.Equal(t, "the leader cannot be asked: etcdserver: no leader", session["problem"])
	require.Equal(t, "this node does not serve; its log says why", status["not_serving"])

	address, node = startReplica(t, writing)
	enableAuth(t, address)
	alice := newBrowser(t, address)
	alice.login("alice", "alicepw")
	node.StopServing(cause)
	session = alice.ok(alice.ask("session"))
	require.Equal(t, "alice", session["user"])
	require.Equal(t, false, session["may_write"])
	for _, path := range []string{"status", "keys", "access", "sizes"} {
		code, out := alice.ask(path)
		require.Equal(t, http.StatusServiceUnavailable, code, path)
		require.Equal(t, "etcdserver: no leader", out["error"])
	}
	for _, change := range changes {
		code, _ := alice.post(change.path, change.body)
		require.NotEqual(t, http.StatusOK, code, change.path)
	}
}

func TestPagesOfOtherSitesCannotWrite(t *testing.T) {
	address := start(t, writing)
	b := newBrowser(t, address)
	body := []byte(`{"key":"YQ==","value":"","mod_revision":0}`)
	for name, headers := range map[string]map[string]string{
		"another site":            {"Content-Type": "application/json", "Origin": "https://elsewhere.example"},
		"another site, new style": {"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"},
		"another port": {"Content-Type": "application/json", "Sec-Fetch-Site": "same-site",
			"Origin": "http://127.0.0.1:1"},
	} {
		resp, _ := b.do(http.MethodPost, "/ui/api/put", body, headers)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, name)
	}
	resp, _ := b.do(http.MethodPost, "/ui/api/put", body, map[string]string{"Content-Type": "text/plain"})
	require.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode, "what a form can send")
	resp, _ = b.do(http.MethodGet, "/ui/api/put", nil, nil)
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.EqualValues(t, 0, b.ok(b.ask("sizes"))["keys"])
}

func TestCookieIsSentToThisPageOnly(t *testing.T) {
	address := start(t)
	enableAuth(t, address)
	b := newBrowser(t, address)
	for origin, secure := range map[string]bool{"": false, "https://" + strings.TrimPrefix(address, "http://"): true} {
		resp, body := b.do(http.MethodPost, "/ui/api/login", []byte(`{"name":"alice","password":"alicepw"}`),
			map[string]string{"Content-Type": "application/json", "Origin": origin})
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.Len(t, resp.Cookies(), 1)
		c := resp.Cookies()[0]
		require.True(t, c.HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, c.SameSite)
		require.Equal(t, "/ui/", c.Path)
		require.Equal(t, secure, c.Secure)
		_, token, _ := strings.Cut(c.Value, ":")
		require.NotEmpty(t, token)
		require.NotContains(t, body, token, "no script sees it")
	}
}

func TestBodiesAreBounded(t *testing.T) {
	b := newBrowser(t, start(t, writing))
	resp, _ := b.do(http.MethodPost, "/ui/api/put", []byte(`{"value":"`+strings.Repeat("A", 4<<20)+`"}`),
		map[string]string{"Content-Type": "application/json"})
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	status, out := b.post("put", object{"key": []byte("a"), "value": make([]byte, 7<<18), "mod_revision": 0})
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "etcdserver: request is too large", out["error"])
}
