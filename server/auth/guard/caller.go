package guard

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

// Source is where a call comes from, which decides how its caller is identified.
type Source int

const (
	// unknown calls are unauthenticated.
	unknown Source = iota
	// Client calls authenticate with a token or a certificate.
	Client
	// Inside calls are made by this process on behalf of a call that it received. They
	// carry the token of that call, or the name in its certificate.
	Inside
	// Peer calls come from another member, which has identified the caller.
	Peer
)

// Metadata of calls of this process and of peers. It is ignored in client calls.
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

// info returns the caller at v's version of users and roles, or nil for an anonymous one.
// Every call is refused if its caller was identified at another revision than v's: the
// token may belong to a removed user, or to an old password.
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

// User returns the name of the caller for logs, as far as this node knows. It returns ""
// for an anonymous caller, and for one whose token is not valid.
func (g *Guard) User(ctx context.Context) string {
	ai, err := g.info(ctx, g.view(g.users.Rows()))
	if err != nil || ai == nil {
		return ""
	}
	return ai.Username
}

// tokenKeys are the metadata keys in which etcd looks for a token; the first one found
// counts.
var tokenKeys = []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger}

// tokenOf returns the token in the metadata of a call, found as etcd finds it.
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

// certificateInfo returns the caller that the certificate names, if clients must have
// certificates.
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

// Forwarded returns the metadata that identifies the caller of ctx to another member. It
// is empty for an anonymous caller. version is the version of users and roles at which the
// caller was identified.
func (g *Guard) Forwarded(ctx context.Context) (md metadata.MD, version int64, err error) {
	// The leader compares the revision: it may answer an old one.
	ai, version, err := g.caller(ctx, g.claimed)
	if err != nil || ai == nil {
		return nil, version, err
	}
	return metadata.Pairs(userKey, ai.Username, revisionKey, strconv.FormatUint(ai.Revision, 10)), version, nil
}

// Inner returns the metadata that identifies the caller of ctx in calls that this process
// makes to itself on the caller's behalf.
func (g *Guard) Inner(ctx context.Context) metadata.MD {
	out := metadata.MD{}
	for _, key := range tokenKeys {
		if vs := metadata.ValueFromIncomingContext(ctx, key); len(vs) > 0 {
			out.Set(key, vs...)
		}
	}
	if len(out) == 0 && sourceOf(ctx) == Client {
		if ai := g.certificateInfo(ctx, g.view(g.users.Rows())); ai != nil {
			out.Set(commonNameKey, ai.Username)
		}
	}
	out.Set("x-forwarded-for", SourceAddress(ctx))
	return out
}

// Secret reports whether metadata with this key must not leave this node.
func Secret(key string) bool {
	return slices.Contains(tokenKeys, key) || key == "grpcgateway-authorization"
}
