package auth

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
)

// Source is where a call comes from, which decides what it may say of its caller.
type Source int

const (
	// unknown calls are nobody's.
	unknown Source = iota
	// Client calls prove who they are with a token or a certificate.
	Client
	// Inside calls are made by this process on behalf of a call that it has taken: they
	// have that call's token, or the name in its certificate.
	Inside
	// Peer calls come from another member, which has found out who the caller is.
	Peer
)

// Metadata of calls that are not clients'. From clients nothing of it is taken.
const (
	commonNameKey = "sqlbrain-common-name-bin" // names need not be ASCII
	userKey       = "sqlbrain-user-bin"
	revisionKey   = "sqlbrain-auth-revision"
)

type sourceKey struct{}

// From returns ctx for a call that comes from s.
func From(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

func sourceOf(ctx context.Context) Source {
	s, _ := ctx.Value(sourceKey{}).(Source)
	return s
}

// info returns who calls, nil for nobody, at the version of users and roles that v is. A
// caller that was found out at another revision than v's is refused, in every call: such a
// token may be of a user that was removed, or of a password that was changed.
func (g *Guard) info(ctx context.Context, v *view) (*etcdauth.AuthInfo, error) {
	ai, err := g.claimed(ctx, v)
	if err == nil {
		err = v.checkRevision(ai)
	}
	if err != nil {
		return nil, err
	}
	return ai, nil
}

// claimed is info without the check of the revision.
func (g *Guard) claimed(ctx context.Context, v *view) (*etcdauth.AuthInfo, error) {
	if v.err != nil {
		return nil, v.err
	}
	source := sourceOf(ctx)
	switch {
	case source == Peer:
		return forwardedInfo(ctx)
	case source == unknown, !v.rows.Enabled:
		return nil, nil
	}
	if token, ok := tokenOf(ctx); ok {
		return g.tokenInfo(ctx, v, token)
	}
	if source == Inside {
		if name := metadata.ValueFromIncomingContext(ctx, commonNameKey); len(name) > 0 {
			return &etcdauth.AuthInfo{Username: name[0], Revision: v.Revision()}, nil
		}
		return nil, nil
	}
	return g.certificateInfo(ctx, v), nil
}

// User returns the name of the caller as far as this node knows, for logs; "" for an anonymous
// one, or one whose token is not valid.
func (g *Guard) User(ctx context.Context) string {
	ai, err := g.info(ctx, g.view(g.node.AuthRows()))
	if err != nil || ai == nil {
		return ""
	}
	return ai.Username
}

// tokenKeys are the metadata that etcd takes a token from, the first that there is.
var tokenKeys = []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger}

// tokenOf returns the token that a call brings, as etcd finds it.
func tokenOf(ctx context.Context) (string, bool) {
	for _, key := range tokenKeys {
		if vs := metadata.ValueFromIncomingContext(ctx, key); len(vs) > 0 {
			return strings.TrimPrefix(vs[0], "Bearer "), true
		}
	}
	return "", false
}

func (g *Guard) tokenInfo(ctx context.Context, v *view, token string) (*etcdauth.AuthInfo, error) {
	if !g.simple {
		ai, err := v.AuthInfoFromCtx(ctx)
		if err == nil && ai != nil && v.user(ai.Username) == nil {
			err = etcdauth.ErrInvalidAuthToken
		}
		return ai, err
	}
	ai, err := g.simpleToken(ctx, v, token)
	if err == nil && ai == nil {
		err = etcdauth.ErrInvalidAuthToken
	}
	return ai, err
}

// certificateInfo returns who the caller's certificate says that it is, if clients
// have to have one.
func (g *Guard) certificateInfo(ctx context.Context, v *view) *etcdauth.AuthInfo {
	if !g.cfg.CommonNames {
		return nil
	}
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil
	}
	if _, ok := p.AuthInfo.(credentials.TLSInfo); !ok {
		return nil
	}
	return v.AuthInfoFromTLS(ctx)
}

func forwardedInfo(ctx context.Context) (*etcdauth.AuthInfo, error) {
	user, revision := metadata.ValueFromIncomingContext(ctx, userKey), metadata.ValueFromIncomingContext(ctx, revisionKey)
	if len(user) == 0 || len(revision) == 0 {
		return nil, nil
	}
	rev, err := strconv.ParseUint(revision[0], 10, 64)
	if err != nil {
		return nil, etcdauth.ErrInvalidAuthToken
	}
	return &etcdauth.AuthInfo{Username: user[0], Revision: rev}, nil
}

// Forwarded returns what tells another member who the caller of ctx is: nothing for
// nobody. version is that of the users and roles it was found out with.
func (g *Guard) Forwarded(ctx context.Context) (md metadata.MD, version int64, err error) {
	// The leader compares the revision: it may answer an old one.
	ai, version, err := g.resolve(ctx, g.claimed)
	if err != nil || ai == nil {
		return nil, version, err
	}
	return metadata.Pairs(userKey, ai.Username, revisionKey, strconv.FormatUint(ai.Revision, 10)), version, nil
}

// Inner returns what tells this process itself who the caller of ctx is, when it
// calls on its behalf.
func (g *Guard) Inner(ctx context.Context) metadata.MD {
	out := metadata.MD{}
	for _, key := range tokenKeys {
		if vs := metadata.ValueFromIncomingContext(ctx, key); len(vs) > 0 {
			out.Set(key, vs...)
		}
	}
	if len(out) == 0 && sourceOf(ctx) == Client {
		if ai := g.certificateInfo(ctx, g.view(g.node.AuthRows())); ai != nil {
			out.Set(commonNameKey, ai.Username)
		}
	}
	out.Set("x-forwarded-for", sourceAddress(ctx))
	return out
}

// Secret reports whether metadata with this key is nobody's business but this node's.
func Secret(key string) bool {
	return slices.Contains(tokenKeys, key) || key == "grpcgateway-authorization"
}
