package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// directory are the users and roles of a plan that has them, and what is judged of them. Each user has a role or two,
// and each role is for a third of the keys.
type directory struct {
	w    *world
	root *login

	// The world's mutex guards the rest.
	users     users
	rows      map[string][]byte // of users, by name
	roles     map[string][]byte
	passwords map[string][]string // that a user has or may have
	claims    []*claim
}

// roles is how many roles there are.
const roles = 3

func newDirectory(w *world) *directory {
	return &directory{w: w, rows: make(map[string][]byte), roles: make(map[string][]byte),
		passwords: make(map[string][]string)}
}

// commit records a commit that the database has executed.
func (d *directory) commit(ops []sqlstore.Op) {
	d.w.mu.Lock()
	err := d.users.note(time.Since(d.w.start), ops, d.rows, d.roles)
	d.w.mu.Unlock()
	if err != nil {
		d.w.fail("users and roles in the table: %v", err)
	}
}

// newest returns the newest state of the table.
func (d *directory) newest() authState {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if len(d.users.states) == 0 {
		return authState{}
	}
	return d.users.states[len(d.users.states)-1]
}

// required returns the version of users and roles that a node has to know before it shows a revision.
func (d *directory) required(revision int64) (version int64) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, s := range d.users.states {
		if s.hi < revision {
			version = s.Version
		}
	}
	return version
}

// identify adds the token of the client to a call.
func (c *client) identify(ctx context.Context) context.Context {
	if c.as == nil {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, c.as.token)
}

// identified are the options of a connection whose calls have the client's token.
func (c *client) identified() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(c.identify(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(c.identify(ctx), desc, cc, method, opts...)
		}),
	}
}

// refusalOf returns what an error says about the caller, 0 if nothing. old says that users or roles changed meanwhile.
func refusalOf(err error) (r refusal, old bool) {
	text := ""
	if err != nil {
		text = status.Convert(err).Message()
	}
	switch {
	case strings.Contains(text, rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied)),
		strings.Contains(text, rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty)):
		return denied, false
	case strings.Contains(text, rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken)):
		return unknown, false
	}
	return 0, strings.Contains(text, rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision))
}

// refused reports whether an error of a plan with users is about the caller. The request has no effect then.
func (c *client) refused(err error) bool {
	r, old := refusalOf(err)
	return c.directory != nil && (r != 0 || old)
}

// claims begins a request that needs permissions. It returns nil in plans without users.
func (c *client) claims(what any, needs []need, leases []int64) *claim {
	if c.directory == nil {
		return nil
	}
	if request, ok := what.(proto.Message); ok && needs == nil && leases == nil {
		needs, leases = needsOf(request)
	}
	newest := c.recorder.Newest()
	return &claim{what: what, as: c.as, needs: needs, leases: leases, began: c.now(), before: math.MaxInt64,
		after: newest, first: newest}
}

// claim notes the answer to a request. It was judged after revision after, and before the one that follows before.
func (c *client) claim(cl *claim, after, before int64, err error) {
	if c.directory == nil {
		return
	}
	r, old := refusalOf(err)
	if old || err != nil && r == 0 {
		return
	}
	cl.refused, cl.ended, cl.last = r, c.now(), c.w.token().Revision
	if err == nil {
		cl.after, cl.before = max(after, cl.after), before
		if before < math.MaxInt64 {
			cl.first, cl.last = before, before
		}
	} else {
		cl.stale = false // a refusal is confirmed
	}
	if len(cl.leases) == 0 && cl.reads == 0 {
		cl.first, cl.last = 0, 0
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.directory.claims = append(c.directory.claims, cl)
}

// claimed notes the answer to a request of the key space.
func (c *client) claimed(cl *claim, outcome history.Outcome, revision int64, err error) {
	switch outcome {
	case history.Applied:
		c.claim(cl, revision, revision-1, err)
	case history.NotApplied:
		c.claim(cl, revision, revision, err)
	default:
		c.claim(cl, revision, math.MaxInt64, err)
	}
}

// enable makes users and roles, switches authentication on, and grants leases that users share.
func (cl *clients) enable() {
	d := cl.directory
	c := cl.newClient("admin", nodes[0])
	defer c.disconnect()
	auth := pb.NewAuthClient(c.connect())
	must := func(err error) {
		if err != nil {
			cl.w.fail("users and roles: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	add := func(user string, has ...string) {
		d.passwords[user] = []string{user}
		_, err := auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: user, Password: user})
		must(err)
		for _, role := range has {
			_, err := auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: user, Role: role})
			must(err)
		}
	}
	for i := range roles {
		_, err := auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: role(i)})
		must(err)
		_, err = auth.RoleGrantPermission(ctx, cl.permission(i, authpb.READWRITE))
		must(err)
	}
	_, err := auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "root"})
	must(err)
	add("root", "root")
	for i := range cl.w.plan.Workload.Users {
		add(user(i), role(i%roles), role((i+1)%roles))
	}
	_, err = auth.AuthEnable(ctx, &pb.AuthEnableRequest{})
	must(err)
	c.user = "root"
	if must(c.login(ctx)); c.as == nil {
		return
	}
	d.root = c.as
	for i := range int64(2) {
		must(c.grantWithin(ctx, &lease{id: 1000 + i, ttl: 600}))
	}
}

func user(i int) string { return fmt.Sprintf("u%d", i) }

func role(i int) string { return fmt.Sprintf("r%d", i) }

// share is the part of all keys that one role is for.
func (cl *clients) share(i int) (key, end string) {
	keys := cl.w.plan.Workload.Keys
	return fmt.Sprintf("%s%d", prefix, i*keys/roles), fmt.Sprintf("%s%d", prefix, (i+1)*keys/roles)
}

func (cl *clients) permission(i int, kind authpb.Permission_Type) *pb.AuthRoleGrantPermissionRequest {
	key, end := cl.share(i)
	return &pb.AuthRoleGrantPermissionRequest{Name: role(i), Perm: &authpb.Permission{PermType: kind, Key: []byte(key),
		RangeEnd: []byte(end)}}
}

// ofOneRole returns a request that mostly needs the permissions of one role.
func (a author) ofOneRole() proto.Message {
	i := a.rnd.IntN(roles)
	first, end := a.share(i)
	key := fmt.Sprintf("%s%d", prefix, (i*a.w.plan.Workload.Keys+a.rnd.IntN(a.w.plan.Workload.Keys))/roles)
	switch a.rnd.IntN(10) {
	case 0, 1, 2, 3:
		r := &pb.PutRequest{Key: []byte(key), PrevKv: a.oneIn(4)}
		if a.oneIn(2) {
			r.Lease = a.held[i%len(a.held)].id
		}
		return r
	case 4, 5:
		r := &pb.RangeRequest{Key: []byte(key), Serializable: a.oneIn(2)}
		if a.oneIn(2) {
			r.Key, r.RangeEnd = []byte(first), []byte(end)
		}
		return r
	case 6:
		return &pb.DeleteRangeRequest{Key: []byte(key), PrevKv: a.oneIn(4)}
	case 7:
		r := a.create(key) // one of its branches can be of another role
		if r.Failure[0].GetRequestRange().Key = []byte(a.key()); a.oneIn(2) {
			r.Success, r.Failure = r.Failure, r.Success
		}
		return r
	default:
		return a.update(key)
	}
}

// login gets a token for the client's user.
func (c *client) login(ctx context.Context) error {
	c.w.mu.Lock()
	passwords := c.directory.passwords[c.user]
	password := passwords[c.rnd.IntN(len(passwords))]
	c.w.mu.Unlock()
	l := &login{user: c.user, password: password, began: c.now()}
	answer, err := pb.NewAuthClient(c.connect()).Authenticate(ctx,
		&pb.AuthenticateRequest{Name: c.user, Password: password})
	c.w.trace(c.process.name, "login of %s: %v", c.user, err)
	if err == nil {
		l.token, l.ended = answer.Token, c.now()
		c.as = l
	}
	return err
}

// use is what a client of a plan with users does: it sends requests as a user, or as nobody.
func (c *client) use() {
	if c.user != "" {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		for c.as == nil && ctx.Err() == nil && !c.over() {
			if c.login(ctx) != nil {
				c.pause(100 * time.Millisecond)
			}
		}
		cancel()
	}
	c.run()
}

// useMore sends one of the requests that are not of the key space.
func (c *client) useMore() (err error) {
	ctx, cancel := c.timeout()
	defer cancel()
	a := author{c}
	switch c.rnd.IntN(6) {
	case 0, 1:
		return c.grantAndRevoke(ctx)
	case 2:
		id := a.lease()
		cl := c.claims("renewal", nil, []int64{id})
		_, err = c.keepAlive(ctx, id)
		c.claim(cl, 0, math.MaxInt64, err)
	case 3:
		request := &pb.LeaseTimeToLiveRequest{ID: a.lease(), Keys: true}
		cl := c.claims(request, nil, nil)
		cl.reads = request.ID
		var answer *pb.LeaseTimeToLiveResponse
		if answer, err = pb.NewLeaseClient(c.connect()).LeaseTimeToLive(ctx, request); err == nil {
			cl.reads = 0
			for _, key := range answer.Keys {
				cl.needs = append(cl.needs, need{Range: history.Range{Key: string(key)}})
			}
		}
		c.claim(cl, 0, math.MaxInt64, err)
	default:
		key, end := a.span()
		request := &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end)}
		cl, shown := c.claims(request, []need{{Range: history.Range{Key: key, End: end}}}, nil), c.shown()
		confirmed := cl.after
		cl.after, cl.stale = shown.revision, true
		var refusal error
		err = c.open(ctx, request, func(r *pb.WatchResponse) error {
			if r.Canceled {
				refusal = errors.New(r.CancelReason)
				cl.after = confirmed
			}
			return errCreated
		})
		if errors.Is(err, errCreated) {
			c.claim(cl, 0, math.MaxInt64, refusal)
			err = refusal
		}
	}
	return err
}

// grantAndRevoke revokes leases without keys among puts. That needs a user, and no permission.
func (c *client) grantAndRevoke(ctx context.Context) error {
	leases := pb.NewLeaseClient(c.connect())
	var ids [4]int64
	for i := range ids {
		l, err := leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 2})
		if err != nil {
			return err
		}
		ids[i] = l.ID
	}
	var sent sync.WaitGroup
	var errs [len(ids)]error
	for i, id := range ids {
		put := &pb.PutRequest{Key: []byte(c.key())}
		sent.Go(func() { _ = c.change(ctx, put, false) }) // an error is judged too
		sent.Go(func() { errs[i] = c.revokeEmpty(ctx, leases, id) })
	}
	sent.Wait()
	return cmp.Or(errs[:]...)
}

func (c *client) revokeEmpty(ctx context.Context, leases pb.LeaseClient, id int64) error {
	request := &pb.LeaseRevokeRequest{ID: id}
	claim := c.claims(request, nil, nil)
	answer, err := leases.LeaseRevoke(ctx, request)
	c.w.trace(c.process.name, "revocation of %x, which has no keys: %v", id, err)
	if revision := answer.GetHeader().GetRevision(); err == nil {
		c.claim(claim, revision, revision, nil)
	} else {
		c.claim(claim, 0, math.MaxInt64, err)
	}
	return err
}

var errCreated = errors.New("the watch was created, or refused")

// administer changes users and roles, often one change after the other, and then nothing for a while.
func (c *client) administer() {
	defer c.disconnect()
	granted := make(map[string]bool) // roles of users that a request without an answer may still grant
	for n := 0; !c.over(); n++ {
		c.alter(n, granted)
		if c.oneIn(8) {
			c.pause(time.Second)
		} else {
			c.pause(40 * time.Millisecond)
		}
	}
}

// alter makes a change of users and roles.
func (c *client) alter(n int, granted map[string]bool) {
	ctx, cancel := c.timeout()
	defer cancel()
	auth, began := pb.NewAuthClient(c.connect()), c.now()
	someone, i := user(c.rnd.IntN(c.w.plan.Workload.Users)), c.rnd.IntN(roles)
	key, end := c.share(i)
	what, revision, err := "", int64(0), error(nil)
	done := func(answer interface{ GetHeader() *pb.ResponseHeader }, e error) {
		if err = e; err == nil {
			revision = answer.GetHeader().GetRevision()
		}
	}
	switch kind := c.rnd.IntN(10); {
	case kind < 2:
		what = "password of " + someone
		password := fmt.Sprintf("%s-%d", someone, n)
		c.w.mu.Lock()
		c.directory.passwords[someone] = append(c.directory.passwords[someone], password)
		c.w.mu.Unlock()
		if done(auth.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: someone,
			Password: password})); err == nil {
			c.w.mu.Lock()
			c.directory.passwords[someone] = []string{password}
			c.w.mu.Unlock()
		}
	case kind < 7:
		what = "role of " + someone
		if slices.Contains(c.directory.newest().users[someone].roles, role(i)) {
			if c.oneIn(2) {
				return
			}
			done(auth.UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: someone, Role: role(i)}))
		} else if grant := someone + role(i); !granted[grant] {
			done(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: someone, Role: role(i)}))
			// If it was granted by another request meanwhile, this one changes nothing, and the judge would take it for the
			// other.
			granted[grant] = err != nil && outcomeOf(err) != history.Refused
		} else {
			return
		}
	case kind < 8:
		what = "revocation from " + role(i)
		done(auth.RoleRevokePermission(ctx, &pb.AuthRoleRevokePermissionRequest{Role: role(i), Key: []byte(key),
			RangeEnd: []byte(end)}))
	default:
		what = "grant to " + role(i)
		done(auth.RoleGrantPermission(ctx, c.permission(i,
			[]authpb.Permission_Type{authpb.READ, authpb.WRITE, authpb.READWRITE, authpb.READWRITE,
				authpb.READWRITE}[c.rnd.IntN(5)])))
	}
	c.w.trace(c.process.name, "%s: %v", what, err)
	if err != nil {
		c.failed(err)
		return
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.directory.users.acknowledge(began, c.now(), revision)
}

// settle makes a last change of users and roles, and revokes the leases that users share. All faults are over.
func (cl *clients) settle() {
	c := cl.newClient("settle", nodes[0])
	defer c.disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), recoveryTime)
	defer cancel()
	if _, err := pb.NewAuthClient(c.connect()).RoleGrantPermission(ctx, cl.permission(0, authpb.READWRITE)); err != nil {
		cl.w.fail("the last change of users and roles: %v", err)
	}
	for _, l := range cl.held {
		if op := c.revokeWithin(ctx, l); op.Outcome != history.Applied {
			cl.w.fail("lease %x: %v", l.id, op)
		}
	}
}

// judgeUsers judges all answers by the history of users and roles, and that all nodes know the newest.
func (cl *clients) judgeUsers(account []history.Revision) {
	d := cl.directory
	newest := d.newest()
	for _, name := range nodes {
		if n := cl.w.machines[name].running(); n != nil && n.Replica().AuthRows().AuthSettings != newest.AuthSettings {
			cl.w.fail("%s knows users and roles %+v, the table has %+v", name, n.Replica().AuthRows().AuthSettings,
				newest.AuthSettings)
		}
	}
	attached := attachments(account)
	for _, c := range d.claims {
		if why := d.users.wrong(c, attached); why != "" {
			cl.w.fail("%s", why)
		}
	}
	cl.w.stats.Claims = len(d.claims)
}
