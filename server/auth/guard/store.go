package guard

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/auth"
)

// store is etcd's view of the table of users and roles: one version of it, in memory.
// A writable store must be used by one goroutine only.
type store struct {
	enabled  bool
	revision uint64
	users    map[string]*authpb.User
	roles    map[string]*authpb.Role

	// The changes written so far, in the form of auth.Change; nil in a read-only store.
	change  *auth.Change
	maxCost int   // of new passwords
	err     error // first error of a write
}

var (
	_ etcdauth.AuthBackend = (*store)(nil)
	_ etcdauth.AuthReadTx  = (*store)(nil)
	_ etcdauth.AuthBatchTx = (*store)(nil)
)

// newStore decodes rows.
func newStore(rows *auth.Rows) (*store, error) {
	s := &store{
		enabled: rows.Enabled, revision: uint64(rows.Revision),
		users: make(map[string]*authpb.User, len(rows.Users)), roles: make(map[string]*authpb.Role, len(rows.Roles)),
	}
	for name, content := range rows.Users {
		s.users[name] = &authpb.User{}
		if err := proto.Unmarshal(content, s.users[name]); err != nil {
			return nil, fmt.Errorf("guard: the row of user %q: %w", name, err)
		}
	}
	for name, content := range rows.Roles {
		s.roles[name] = &authpb.Role{}
		if err := proto.Unmarshal(content, s.roles[name]); err != nil {
			return nil, fmt.Errorf("guard: the row of role %q: %w", name, err)
		}
	}
	return s, nil
}

// writable returns a copy of s that records writes. New passwords may have a bcrypt cost of
// up to maxCost.
func (s *store) writable(maxCost int) *store {
	return &store{
		maxCost: maxCost,
		enabled: s.enabled, revision: s.revision, users: maps.Clone(s.users), roles: maps.Clone(s.roles),
		change: &auth.Change{Users: make(map[string][]byte), Roles: make(map[string][]byte)},
	}
}

// changes returns the writes to s, a copy of from; nil if there were none.
func (s *store) changes(from *store) (*auth.Change, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.enabled == from.enabled && s.revision == from.revision && len(s.change.Users) == 0 && len(s.change.Roles) == 0 {
		return nil, nil
	}
	s.change.Enabled, s.change.Revision = s.enabled, int64(s.revision)
	return s.change, nil
}

// Locks do nothing: the store is used by one goroutine, or it is read-only.

func (s *store) CreateAuthBuckets()              {}
func (s *store) ForceCommit()                    {}
func (s *store) ReadTx() etcdauth.AuthReadTx     { return s }
func (s *store) BatchTx() etcdauth.AuthBatchTx   { return s }
func (s *store) RLock()                          {}
func (s *store) RUnlock()                        {}
func (s *store) Lock()                           {}
func (s *store) Unlock()                         {}
func (s *store) UnsafeReadAuthEnabled() bool     { return s.enabled }
func (s *store) UnsafeReadAuthRevision() uint64  { return s.revision }
func (s *store) UnsafeSaveAuthEnabled(on bool)   { s.enabled = on }
func (s *store) UnsafeSaveAuthRevision(r uint64) { s.revision = r }

func (s *store) GetUser(name string) *authpb.User { return s.UnsafeGetUser(name) }
func (s *store) GetAllUsers() []*authpb.User      { return s.UnsafeGetAllUsers() }
func (s *store) GetRole(name string) *authpb.Role { return s.UnsafeGetRole(name) }
func (s *store) GetAllRoles() []*authpb.Role      { return s.UnsafeGetAllRoles() }

func (s *store) UnsafeGetUser(name string) *authpb.User { return get(s, s.users, name) }
func (s *store) UnsafeGetRole(name string) *authpb.Role { return get(s, s.roles, name) }
func (s *store) UnsafeGetAllUsers() []*authpb.User      { return all(s, s.users) }
func (s *store) UnsafeGetAllRoles() []*authpb.Role      { return all(s, s.roles) }

// get returns the named message. In a writable store it is a copy, because etcd's code
// changes it.
func get[T proto.Message](s *store, from map[string]T, name string) T {
	v, ok := from[name]
	if ok && s.change != nil {
		v = proto.Clone(v).(T)
	}
	return v
}

// all returns everything in the order of names.
func all[T proto.Message](s *store, from map[string]T) []T {
	names := slices.Sorted(maps.Keys(from))
	values := make([]T, len(names))
	for i, name := range names {
		values[i] = get(s, from, name)
	}
	return values
}

// UnsafePutUser refuses a new password whose hash is too costly. A password that is already
// in the table is accepted, so that the roles of such a user can be changed.
func (s *store) UnsafePutUser(u *authpb.User) {
	if before := s.users[string(u.Name)]; !bytes.Equal(u.Password, before.GetPassword()) {
		if err := CheckStoredPassword(u.Password, s.maxCost); err != nil {
			s.err = err
		}
	}
	s.users[string(u.Name)] = u
	s.change.Users[string(u.Name)] = s.encode(u)
}

func (s *store) UnsafePutRole(r *authpb.Role) {
	s.roles[string(r.Name)] = r
	s.change.Roles[string(r.Name)] = s.encode(r)
}

func (s *store) UnsafeDeleteUser(name string) {
	delete(s.users, name)
	s.change.Users[name] = nil
}

func (s *store) UnsafeDeleteRole(name string) {
	delete(s.roles, name)
	s.change.Roles[name] = nil
}

// encode never returns nil, because a nil value would remove the row.
func (s *store) encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{}, m)
	if err != nil {
		s.err = fmt.Errorf("guard: %w", err)
	}
	return b
}
