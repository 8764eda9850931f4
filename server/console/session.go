package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// cookieName is that of the cookie which has the user's name, for showing it, and the
// token. Scripts cannot read it, and other sites' pages do not send it.
const cookieName = "sqlbrain-console"

// sessionLifetime is how long a login lasts at most, however often its token is used.
const sessionLifetime = 12 * time.Hour

// rootRole may do everything, as in etcd.
const rootRole = "root"

// credentials returns the user and the token that the request claims, not verified; empty without
// a login.
func credentials(r *http.Request) (name, token string) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return "", ""
	}
	encoded, token, _ := strings.Cut(c.Value, ":")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", ""
	}
	return string(raw), token
}

// from returns the context of calls that are made for r without its credentials. It names the
// browser's address: the server delays and records sources, and this process is none.
func from(r *http.Request) context.Context {
	return metadata.AppendToOutgoingContext(r.Context(), "x-forwarded-for", r.RemoteAddr)
}

// caller returns the context of calls that are made for r.
func caller(r *http.Request) context.Context {
	ctx := from(r)
	if _, token := credentials(r); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
	}
	return ctx
}

// setCookie keeps what it is given until the browser ends; nothing ends it at once.
func setCookie(w http.ResponseWriter, r *http.Request, value string) {
	c := &http.Cookie{
		Name: cookieName, Value: value, Path: Path, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		// The page's own address says whether TLS protects it, in front of a proxy too.
		Secure: strings.HasPrefix(r.Header.Get("Origin"), "https://"),
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

func (h *Handler) login(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Name, Password string }
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	ctx := metadata.AppendToOutgoingContext(from(r), guard.LifetimeKey, strconv.Itoa(int(sessionLifetime/time.Second)))
	resp, err := h.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: in.Name, Password: in.Password})
	if err != nil {
		return nil, err
	}
	setCookie(w, r, base64.RawURLEncoding.EncodeToString([]byte(in.Name))+":"+resp.Token)
	return map[string]string{"user": in.Name}, nil
}

// logout has the browser forget the token, also if the server cannot make it void now.
func (h *Handler) logout(w http.ResponseWriter, r *http.Request) (any, error) {
	setCookie(w, r, "")
	if _, token := credentials(r); token == "" {
		return struct{}{}, nil
	}
	ctx, cancel := context.WithTimeout(caller(r), askTimeout)
	defer cancel()
	return struct{}{}, h.cfg.Keys.Logout(ctx)
}

// sessionBody describes the visitor and what they may do.
type sessionBody struct {
	AuthEnabled bool         `json:"auth_enabled"`
	User        string       `json:"user"`
	Roles       []string     `json:"roles"`
	Root        bool         `json:"root"`
	Permissions []permission `json:"permissions"`
	// MayWrite: changes are not refused from the start. Whether one is permitted is
	// seen when it is tried.
	MayWrite bool `json:"may_write"`
	// Problem says why the user was logged out, or why that cannot be checked.
	Problem string `json:"problem,omitempty"`
}

// permission is one of a role's.
type permission struct {
	Type     string `json:"type"` // read, write, readwrite
	Key      []byte `json:"key"`
	RangeEnd []byte `json:"range_end"`
}

func permissionOf(p *authpb.Permission) permission {
	return permission{strings.ToLower(p.PermType.String()), p.Key, p.RangeEnd}
}

func (p permission) allowsWrite(key []byte) bool {
	switch {
	case p.Type == "read":
		return false
	case len(p.RangeEnd) == 0:
		return bytes.Equal(p.Key, key)
	}
	return mvcc.KeyRange{Key: p.Key, End: p.RangeEnd}.Span().Contains(key)
}

func (s *sessionBody) allowsWrite(key []byte) bool {
	if !s.MayWrite || !s.AuthEnabled || s.Root {
		return s.MayWrite
	}
	return slices.ContainsFunc(s.Permissions, func(p permission) bool { return p.allowsWrite(key) })
}

func (h *Handler) session(_ http.ResponseWriter, r *http.Request) (any, error) { return h.whoLooks(r) }

// askTimeout bounds the questions that only the leader answers: while there is none,
// the overview must show that.
const askTimeout = 2 * time.Second

func (h *Handler) whoLooks(r *http.Request) (*sessionBody, error) {
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	s, err := h.ask(r.WithContext(ctx))
	if err == nil || statusOf(err) < http.StatusInternalServerError {
		return s, err
	}
	if r.Context().Err() != nil {
		return nil, err
	}
	s = &sessionBody{AuthEnabled: h.cfg.Keys.AuthEnabled(), Problem: "the leader cannot be asked: " + textOf(err)}
	if s.AuthEnabled {
		s.User, _ = credentials(r)
	}
	return s, nil
}

// ask asks the leader who the visitor is.
func (h *Handler) ask(r *http.Request) (*sessionBody, error) {
	ctx := caller(r)
	// Without the token: clients with an invalid one may know whether authentication is on.
	st, err := h.auth.AuthStatus(from(r), &pb.AuthStatusRequest{})
	if err != nil {
		return nil, err
	}
	name, token := credentials(r)
	s := &sessionBody{AuthEnabled: st.Enabled, MayWrite: h.cfg.Write}
	if !st.Enabled {
		return s, nil
	}
	if s.MayWrite = false; token == "" {
		return s, nil
	}
	// A user may ask about itself; only root may ask about others.
	user, err := h.auth.UserGet(ctx, &pb.AuthUserGetRequest{Name: name})
	if err != nil {
		if s.Problem = textOf(err); statusOf(err) < http.StatusInternalServerError {
			return s, nil
		}
		return nil, err
	}
	s.User, s.Roles, s.MayWrite = name, user.Roles, true
	for _, role := range user.Roles {
		if role == rootRole {
			s.Root = true
			continue
		}
		got, err := h.auth.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: role})
		if err != nil {
			return nil, err
		}
		for _, p := range got.Perm {
			s.Permissions = append(s.Permissions, permissionOf(p))
		}
	}
	return s, nil
}
