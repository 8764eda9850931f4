package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
)

// Node is what a Guard needs of *backend.Backend.
type Node interface {
	AuthRows() *backend.AuthRows
	RefreshAuth(ctx context.Context) (*backend.AuthRows, error)
	SyncAuth(ctx context.Context) (*backend.AuthRows, error)
	LeaderAuth(ctx context.Context) (rows *backend.AuthRows, revision int64, err error)
	ChangeAuth(ctx context.Context, change func(*backend.AuthRows) (*backend.AuthChange, error)) (revision int64, err error)
	IssueToken(ctx context.Context, prefix string, describe func(*backend.AuthRows) (coder.Token, error)) (token string, revision int64, err error)
	LookupToken(ctx context.Context, h coder.TokenHash) (row coder.Token, found bool, err error)
	EachLeaseKey(ctx context.Context, id int64, see func(key []byte) error) error
	AnyLeasesKeys(ctx context.Context, see func(id int64, key []byte) error) error
}

var _ Node = (*backend.Backend)(nil)

// Config configures a Guard as etcd's flags do.
type Config struct {
	Logger *slog.Logger
	// Token is etcd's --auth-token: simple, or jwt with its options.
	Token string
	// TokenTTL is how long a simple token stays valid that is not used.
	TokenTTL   time.Duration
	BcryptCost int
	// CommonNames: a client without a token is the user that its certificate names.
	CommonNames bool
}

// DefaultToken is the kind of tokens that etcd gives out if it is not told another.
const DefaultToken = tokenSimple

const tokenSimple = "simple"

// DefaultBcryptCost is etcd's.
const DefaultBcryptCost = bcrypt.DefaultCost

// Guard decides who may do what. Its methods may be called by several goroutines.
type Guard struct {
	cfg      Config
	log      *slog.Logger
	node     Node
	provider etcdauth.TokenProvider // of JWT; of nothing for simple tokens
	none     etcdauth.TokenProvider
	simple   bool
	tokens   *tokens
	hashing  *gate
	failures *failures // of logins
	logins   *prometheus.CounterVec
	lookups  *prometheus.CounterVec // of tokens
}

// Collectors returns the guard's metrics.
func (g *Guard) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.logins, g.lookups}
}

// New fails if cfg.Token is not one of etcd's kinds of tokens, or its files cannot be
// read.
func New(cfg Config, n Node) (*Guard, error) {
	if cfg.BcryptCost < bcrypt.MinCost || cfg.BcryptCost > bcrypt.MaxCost {
		return nil, fmt.Errorf("auth: a bcrypt cost of %d is not between %d and %d", cfg.BcryptCost, bcrypt.MinCost, bcrypt.MaxCost)
	}
	g := &Guard{
		cfg: cfg, log: cfg.Logger, node: n, tokens: newTokens(cfg.TokenTTL),
		hashing: newHashing(), failures: newLoginFailures(), logins: newLogins(), lookups: newLookups(),
	}
	var err error
	if g.none, err = etcdauth.NewTokenProvider(zap.NewNop(), "", nil, 0); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	// What is wrong with the options of JWT etcd tells to its log only.
	var why bytes.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m"}), zapcore.AddSync(&why), zapcore.ErrorLevel))
	if g.provider, err = etcdauth.NewTokenProvider(log, cfg.Token, nil, cfg.TokenTTL); err != nil {
		return nil, fmt.Errorf("auth: tokens of the kind %q: %w: %s", kindOf(cfg.Token), err, strings.TrimSpace(why.String()))
	}
	if kindOf(cfg.Token) == tokenSimple {
		g.simple, g.provider = true, g.none
	}
	return g, nil
}

func kindOf(token string) string {
	kind, _, _ := strings.Cut(token, ",")
	return kind
}

// judge asks check of the users and roles that this node knows. A refusal may be due
// to a change that it has not heard of yet: then it asks again.
func (g *Guard) judge(ctx context.Context, check func(*view) error) error {
	rows := g.node.AuthRows()
	err := check(g.view(rows))
	if err == nil {
		return nil
	}
	newer, nerr := g.node.RefreshAuth(ctx)
	if nerr != nil || newer.Version <= rows.Version {
		return err
	}
	return check(g.view(newer))
}

// caller returns who calls, nil for nobody, and the version of users and roles that
// this was found out with.
func (g *Guard) caller(ctx context.Context) (ai *etcdauth.AuthInfo, version int64, err error) {
	return g.resolve(ctx, g.info)
}

// resolve is caller with another way to find out who calls at a version.
func (g *Guard) resolve(ctx context.Context, info func(context.Context, *view) (*etcdauth.AuthInfo, error)) (ai *etcdauth.AuthInfo, version int64, err error) {
	err = g.judge(ctx, func(v *view) (err error) {
		version = v.rows.Version
		ai, err = info(ctx, v)
		return err
	})
	return ai, version, err
}

// Admin returns nil if the caller has the root role, at the newest version of users
// and roles, or authentication is off.
func (g *Guard) Admin(ctx context.Context) error {
	rows, err := g.node.RefreshAuth(ctx)
	if err != nil {
		return err
	}
	v := g.view(rows)
	ai, err := g.info(ctx, v)
	if err != nil {
		return err
	}
	return v.IsAdminPermitted(ai)
}

// Somebody returns nil if the caller is anybody at all, or authentication is off.
func (g *Guard) Somebody(ctx context.Context) error {
	return g.judge(ctx, func(v *view) error {
		_, err := g.somebody(ctx, v)
		return err
	})
}

// somebody also returns who that is; nil while authentication is off.
func (g *Guard) somebody(ctx context.Context, v *view) (*etcdauth.AuthInfo, error) {
	if !v.IsAuthEnabled() {
		return nil, v.err
	}
	ai, err := g.info(ctx, v)
	if err == nil && ai == nil {
		err = etcdauth.ErrUserEmpty
	}
	return ai, err
}

// anybody is somebody who may be nobody, whom etcd's rules know by an empty name.
func (g *Guard) anybody(ctx context.Context, v *view) (*etcdauth.AuthInfo, error) {
	if !v.rows.Enabled {
		return nil, nil
	}
	ai, err := g.info(ctx, v)
	if err == nil && ai == nil {
		ai = &etcdauth.AuthInfo{}
	}
	return ai, err
}

// Revision is etcd's revision of users and roles, as far as this node knows.
func (g *Guard) Revision() uint64 { return g.view(g.node.AuthRows()).Revision() }

// Refresh reads the newest users and roles, and returns their version.
func (g *Guard) Refresh(ctx context.Context) (int64, error) {
	rows, err := g.node.RefreshAuth(ctx)
	if err != nil {
		return 0, err
	}
	return rows.Version, nil
}
