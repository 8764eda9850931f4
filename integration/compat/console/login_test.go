package console

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// enableAuth makes root, and alice who may read /app/ and write /app/mine/. It returns
// root's client.
func enableAuth(t *testing.T, c *clientv3.Client) *clientv3.Client {
	t.Helper()
	ctx := t.Context()
	put(t, c, "/app/theirs/a", []byte("not hers"))
	put(t, c, "/app/mine/a", []byte("one\ntwo\n"))
	put(t, c, "/secret", []byte("hidden"))
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
	root, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "root", Password: "rootpw"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root
}

func (p *tab) login(name, password string) {
	p.t.Helper()
	p.see("Log in")
	p.fill("User", name)
	p.fill("Password", password)
	p.click("Log in")
}

// value is that of a key, "" if there is none.
func value(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	res, err := c.Get(t.Context(), key)
	require.NoError(t, err)
	if len(res.Kvs) == 0 {
		return ""
	}
	return string(res.Kvs[0].Value)
}

func TestLoginAndChanges(t *testing.T) {
	n, c := start(t)
	root := enableAuth(t, c)
	p := open(t, n.Endpoint())

	p.login("alice", "wrong")
	p.see("etcdserver: authentication failed, invalid user ID or password")
	p.accessible("login")
	p.login("alice", "alicepw")
	p.see("Members")
	p.await(`document.querySelector("#who").innerText.includes("alice")`)
	require.Empty(t, of[string](p, `document.cookie`), "no script sees the token")

	// Denied to alice:
	p.click("Keys")
	p.see("etcdserver: permission denied", "Your roles permit you to read:")
	p.click("/app/")
	p.see("mine/", "theirs/")
	p.visit("#/key/" + link("/secret"))
	p.seeNot("hidden", "etcdserver: permission denied")
	p.visit("#/key/" + link("/app/theirs/a"))
	p.seeNot("Edit", "not hers")
	p.visit("#/new/" + link("/app/theirs/"))
	p.fill("Key", "/app/theirs/b")
	p.fill("Value", "x")
	p.click("Create")
	p.see("etcdserver: permission denied")
	require.Empty(t, value(t, root, "/app/theirs/b"))

	// Permitted to alice:
	p.visit("#/key/" + link("/app/mine/a"))
	p.click("Edit")
	p.fill("Value", "one\nthree\n")
	p.click("Save")
	p.see("version 2")
	require.Equal(t, "one\nthree\n", value(t, root, "/app/mine/a"))

	// Somebody else is faster.
	put(t, root, "/app/mine/a", []byte("theirs"))
	p.click("Edit")
	p.fill("Value", "mine")
	p.click("Save")
	p.see("the key has changed since it was loaded")
	require.Equal(t, "theirs", value(t, root, "/app/mine/a"))
	p.visit("#/new/" + link("/app/mine/"))
	p.fill("Key", `/app/mine/b\x00`)
	p.fill("Value", "new")
	p.click("Create")
	p.see("created")
	require.Equal(t, "new", value(t, root, "/app/mine/b\x00"))
	p.click("Delete")
	p.sure()
	p.see("This key does not exist", "deleted")
	require.Empty(t, value(t, root, "/app/mine/b\x00"))

	p.click("Users")
	p.see("You see yourself.", "read /app/*", "readwrite /app/mine/*")
	p.seeNot("Add a user", "alice")
	p.click("Log out")
	p.see("Log in")
}

// sure says yes to what the page asks.
func (p *tab) sure() {
	p.t.Helper()
	p.await(`!!document.querySelector("dialog[open] .danger")`)
	p.run(`document.querySelector("dialog .danger").click()`)
}

func TestRootChangesUsersAndRoles(t *testing.T) {
	n, c := start(t)
	root := enableAuth(t, c)
	p := open(t, n.Endpoint())
	p.login("root", "rootpw")
	p.see("Members")
	p.click("Users")
	p.see("alice", "readwrite /app/mine/*")

	p.click("Add a user")
	p.fill("User", "bob")
	p.fill("Password", "bobpw")
	p.click("Add user")
	p.see("bob")
	p.click("Add a role")
	p.fill("Role", "reader")
	p.click("Add role")
	p.see("reader")
	p.click("Give a permission")
	p.fill("Role", "reader")
	p.fill("Key", "/app/")
	p.click("Grant permission")
	p.await(`document.querySelector("#roles").innerText.split("read /app/*").length === 3`)
	p.click("Give a role")
	p.fill("User", "bob")
	p.fill("Role", "reader")
	p.click("Grant role")
	p.await(`[...document.querySelectorAll("#users tr")].some((e) => e.innerText.includes("bob") && e.innerText.includes("reader"))`)
	bob, err := root.UserGet(t.Context(), "bob")
	require.NoError(t, err)
	require.Equal(t, []string{"reader"}, bob.Roles)
	role, err := root.RoleGet(t.Context(), "reader")
	require.NoError(t, err)
	require.Len(t, role.Perm, 1)
	require.Equal(t, "/app0", string(role.Perm[0].RangeEnd))
	p.accessible("users")
	p.picture("users.png", 620, false)

	p.run(`document.querySelector("[aria-label='Delete the user bob']").click()`)
	p.sure()
	p.await(`!document.querySelector("#users").innerText.includes("bob")`)
	users, err := root.UserList(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"alice", "root"}, users.Users)

	// Refusals have etcd's error texts.
	p.run(`document.querySelector("[aria-label='Delete the user root']").click()`)
	p.sure()
	p.see("etcdserver: invalid auth management")
}
