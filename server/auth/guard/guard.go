package guard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
)

// Users has the users, roles and tokens, see auth.Store.
type Users interface {
	Rows() *auth.Rows
	Refresh(ctx context.Context) (*auth.Rows, error)
	Sync(ctx context.Context) (*auth.Rows, error)
	OfLeader(ctx context.Context) (rows *auth.Rows, revision int64, err error)
	Change(ctx context.Context, as auth.Permit, change func(*auth.Rows) (*auth.Change, error)) (revision int64,
		err error)
	IssueToken(ctx context.Context, as auth.Permit, prefix string, describe func(*auth.Rows) (coder.Token, error)) (
		token string, revision int64, err error)
	LookupToken(ctx context.Context, h coder.TokenHash) (row coder.Token, found bool, err error)
}

// Attachments has the keys of leases, see lease.Attachments.
type Attachments interface {
	EachKey(ctx context.Context, id int64, see func(key []byte) error) error
	EachAttachment(ctx context.Context, see func(key []byte) error) error
}

// Config configures a Guard, as etcd's flags do where there is one. All fields but CommonNames are
// required.
type Config struct {
	Users       Users
	Attachments Attachments
	Logger      *slog.Logger
	// Token is etcd's --auth-token: simple, or jwt with its options.
	Token string
	// TokenTTL is how long an unused simple token stays valid.
	TokenTTL   time.Duration
	BcryptCost int
	// CommonNames: a client without a token is the user that its certificate names.
	CommonNames bool
}

// DefaultToken is etcd's default kind of tokens.
const DefaultToken = tokenSimple

const tokenSimple = "simple"

// DefaultBcryptCost is etcd's.
const DefaultBcryptCost = bcrypt.DefaultCost

// Guard identifies callers and authorizes their requests. Safe for concurrent use.
type Guard struct {
	cfg      Config
	log      *slog.Logger
	users    Users
	provider etcdauth.TokenProvider // of JWT; of nothing for simple tokens
	none     etcdauth.TokenProvider
	simple   bool
	tokens   *tokens
	hashing  *turns
	held     atomic.Int64 // answers to wrong logins that are held back
	logins   *prometheus.CounterVec
	lookups  *prometheus.CounterVec // of tokens
	views    views

	comparePassword func(hash, password []byte) error
}

// Collectors returns the guard's metrics.
func (g *Guard) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.logins, g.lookups}
}

// New fails if cfg.Token is not one of etcd's kinds of tokens, or its files cannot be
// read.
func New(cfg Config) (*Guard, error) {
	g := &Guard{
		cfg: cfg, log: cfg.Logger, users: cfg.Users, tokens: newTokens(cfg.TokenTTL),
		hashing: newHashing(), logins: newLogins(), lookups: newLookups(),
		comparePassword: bcrypt.CompareHashAndPassword,
	}
	var err error
	if g.none, err = etcdauth.NewTokenProvider(zap.NewNop(), "", nil, 0); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	if g.provider, err = newProvider(cfg.Token, cfg.TokenTTL); err != nil {
		return nil, err
	}
	if kindOf(cfg.Token) == tokenSimple {
		g.simple, g.provider = true, g.none
	}
	return g, nil
}

// CheckToken returns the error of New for a kind of tokens.
func CheckToken(token string) error {
	_, err := newProvider(token, 0)
	return err
}

func newProvider(token string, ttl time.Duration) (etcdauth.TokenProvider, error) {
	// etcd reports errors in the options of JWT only to its log.
	var why bytes.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m"}),
		zapcore.AddSync(&why), zapcore.ErrorLevel))
	provider, err := etcdauth.NewTokenProvider(log, token, nil, ttl)
	if err != nil {
		return nil, fmt.Errorf("guard: tokens of the kind %q: %w: %s", kindOf(token), err, strings.TrimSpace(why.String()))
	}
	return provider, nil
}

func kindOf(token string) string {
	kind, _, _ := strings.Cut(token, ",")
	return kind
}

// authorize calls check with the users and roles that this node knows. A refusal may be due to
// outdated users and roles. If a newer version exists, authorize loads it and calls check again. If that is not known,
// its error is the reason why.
func (g *Guard) authorize(ctx context.Context, check func(*view) error) error {
	rows := g.users.Rows()
	err := check(g.view(rows))
	if err == nil {
		return nil
	}
	newer, unconfirmed := g.users.Refresh(ctx)
	switch {
	case unconfirmed != nil:
		return unconfirmed
	case newer.Version <= rows.Version:
		return err
	}
	return check(g.view(newer))
}

// caller returns the caller that info finds, nil for an anonymous one, and the version of users and
// roles at which it was identified. info is Guard.info or Guard.claimed.
func (g *Guard) caller(ctx context.Context,
	info func(context.Context, *view) (*etcdauth.AuthInfo, error)) (ai *etcdauth.AuthInfo, version int64, err error) {
	err = g.authorize(ctx, func(v *view) (err error) {
		version = v.rows.Version
		ai, err = info(ctx, v)
		return err
	})
	return ai, version, err
}

// Admin permits requests that require the root role. It authorizes the caller at the newest
// version of users and roles, before the request. Without authentication it permits all.
func (g *Guard) Admin(ctx context.Context) (auth.Permit, error) {
	rows, err := g.users.Refresh(ctx)
	if err != nil {
		return auth.Permit{}, err
	}
	v := g.view(rows)
	ai, err := g.info(ctx, v)
	if err != nil {
		return auth.Permit{}, err
	}
	return preAuthorized(v.IsAdminPermitted(ai))
}

// preAuthorized returns the permit of a request that was authorized before its execution: err is
// nil if it is permitted.
func preAuthorized(err error) (auth.Permit, error) {
	if err != nil {
		return auth.Permit{}, err
	}
	return auth.PreAuthorized, nil
}

// AnyUser permits requests of every authenticated user. It authorizes the caller before the
// request. Without authentication it permits all.
func (g *Guard) AnyUser(ctx context.Context) (auth.Permit, error) {
	return preAuthorized(g.authorize(ctx, func(v *view) error {
		_, err := g.authenticated(ctx, v)
		return err
	}))
}

// authenticated returns the caller, which must not be anonymous. It returns nil while
// authentication is off.
func (g *Guard) authenticated(ctx context.Context, v *view) (*etcdauth.AuthInfo, error) {
	if !v.IsAuthEnabled() {
		return nil, v.err
	}
	ai, err := g.info(ctx, v)
	if err == nil && ai == nil {
		err = etcdauth.ErrUserEmpty
	}
	return ai, err
}

// callerOrAnonymous returns the caller. An anonymous caller has an empty name, as etcd's
// checks expect. It returns nil while authentication is off.
func (g *Guard) callerOrAnonymous(ctx context.Context, v *view) (*etcdauth.AuthInfo, error) {
	if !v.rows.Enabled {
		return nil, nil
	}
	ai, err := g.info(ctx, v)
	if err == nil && ai == nil {
		ai = &etcdauth.AuthInfo{}
	}
	return ai, err
}

// Enabled reports whether authentication is on, as far as this node knows.
func (g *Guard) Enabled() bool { return g.users.Rows().Enabled }

// Revision is etcd's revision of users and roles, as far as this node knows.
func (g *Guard) Revision() uint64 { return g.view(g.users.Rows()).Revision() }

// Refresh reads the newest users and roles, and returns their version.
func (g *Guard) Refresh(ctx context.Context) (int64, error) {
	rows, err := g.users.Refresh(ctx)
	if err != nil {
		return 0, err
	}
	return rows.Version, nil
}

// view returns the view of rows. It makes one if none is cached.
func (g *Guard) view(rows *auth.Rows) *view {
	if v := g.views.find(rows); v != nil {
		return v
	}
	g.views.mu.Lock()
	defer g.views.mu.Unlock()
	if v := g.views.find(rows); v != nil {
		return v
	}
	if v := g.views.sameUsers(rows); v != nil {
		g.views.keep(v)
		return v
	}
	v := &view{rows: rows}
	if v.store, v.err = newStore(rows); v.err != nil {
		g.log.Error("users and roles cannot be read", "error", v.err)
		v.store = &store{enabled: true}
	}
	v.noPassword = hashOfNoPassword(v.store.commonCost(g.cfg.BcryptCost))
	v.AuthStore = g.over(v.store, g.provider)
	g.views.keep(v)
	return v
}

// over returns etcd's rules over s. Their log output is discarded.
func (g *Guard) over(s *store, tokens etcdauth.TokenProvider) etcdauth.AuthStore {
	return etcdauth.NewAuthStore(zap.NewNop(), s, tokens, g.cfg.BcryptCost)
}
