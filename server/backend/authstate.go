package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// AuthRows is all that the table holds of users and roles, at one version. Nobody
// changes one. What the values say is for the server's front to know.
type AuthRows struct {
	coder.AuthSettings
	Users, Roles map[string][]byte // by name
	// Revoked are the tokens that are void before their time, by their hashes.
	Revoked map[string][]byte

	once sync.Once
	view any
}

// View returns what build makes of the rows, which is asked once.
func (r *AuthRows) View(build func(*AuthRows) any) any {
	r.once.Do(func() { r.view = build(r) })
	return r.view
}

// with returns r after c.
func (r *AuthRows) with(c *AuthChange) *AuthRows {
	next := &AuthRows{AuthSettings: r.AuthSettings, Users: maps.Clone(r.Users), Roles: maps.Clone(r.Roles), Revoked: maps.Clone(r.Revoked)}
	next.Version++
	next.Enabled, next.Revision = c.Enabled, c.Revision
	if r.Enabled && !c.Enabled {
		next.Epoch++
	}
	for _, k := range []struct{ rows, changed map[string][]byte }{{next.Users, c.Users}, {next.Roles, c.Roles}, {next.Revoked, c.Revoked}} {
		for name, value := range k.changed {
			if value == nil {
				delete(k.rows, name)
			} else {
				k.rows[name] = value
			}
		}
	}
	return next
}

// authState is what this node knows of users and roles: on the leader the newest,
// on a follower what the table had when the leader last told of a change.
type authState struct {
	store   sqlstore.Store
	current atomic.Pointer[AuthRows]
	loads   *shared[*AuthRows]
}

func newAuthState(store sqlstore.Store, b *Backend) *authState {
	s := &authState{store: store}
	s.current.Store(&AuthRows{Users: map[string][]byte{}, Roles: map[string][]byte{}, Revoked: map[string][]byte{}})
	s.loads = newShared(b.cfg.RequestTimeout, s.load)
	return s
}

// load returns the rows that the table holds, or newer ones, from memory if these
// are still the same. The settings are read before and behind the others: only if
// nothing changed meanwhile do they belong together.
func (s *authState) load(ctx context.Context) (*AuthRows, error) {
	before, err := s.settings(ctx)
	for err == nil {
		if known := s.current.Load(); before.Version <= known.Version {
			return known, nil
		}
		rows := &AuthRows{AuthSettings: before}
		if rows.Users, err = s.values(ctx, coder.AuthUser); err != nil {
			break
		}
		if rows.Roles, err = s.values(ctx, coder.AuthRole); err != nil {
			break
		}
		if rows.Revoked, err = s.values(ctx, coder.AuthRevoked); err != nil {
			break
		}
		var behind coder.AuthSettings
		if behind, err = s.settings(ctx); err == nil && behind == before {
			return s.raise(rows), nil
		}
		before = behind
	}
	return nil, fmt.Errorf("reading users and roles: %w", err)
}

func (s *authState) settings(ctx context.Context) (coder.AuthSettings, error) {
	raw, err := s.store.Get(ctx, coder.AuthSettingsKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return coder.AuthSettings{}, nil
	}
	if err != nil {
		return coder.AuthSettings{}, err
	}
	return coder.DecodeAuthSettings(raw)
}

func (s *authState) values(ctx context.Context, kind coder.AuthKind) (map[string][]byte, error) {
	lo, hi := coder.AuthBounds(kind)
	it := s.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	values := make(map[string][]byte)
	for it.Next() {
		_, name, err := coder.DecodeAuthKey(it.Key())
		if err != nil {
			return nil, err
		}
		content, err := coder.DecodeAuthValue(it.Value())
		if err != nil {
			return nil, err
		}
		values[name] = append([]byte(nil), content...)
	}
	return values, it.Err()
}

// raise makes rows the current ones unless newer ones are, and returns those that are.
func (s *authState) raise(rows *AuthRows) *AuthRows {
	for {
		known := s.current.Load()
		if rows.Version <= known.Version {
			return known
		}
		if s.current.CompareAndSwap(known, rows) {
			return rows
		}
	}
}

// LoadAuth makes sure that this node knows the users and roles of a version that a
// leader has told of. What was committed behind them must not be shown before.
func (b *Backend) LoadAuth(ctx context.Context, version int64) error {
	if version <= b.AuthRows().Version {
		return nil
	}
	rows, err := b.auth.loads.get(ctx)
	if err == nil && rows.Version < version {
		err = fmt.Errorf("users and roles are at version %d in the table, the leader told of %d", rows.Version, version)
	}
	return err
}

// AuthRows returns the users and roles that this node knows of: on the leader the
// newest, elsewhere those of a moment ago.
func (b *Backend) AuthRows() *AuthRows { return b.auth.current.Load() }

// RefreshAuth returns the newest users and roles: of a follower, those in the table.
// Errors: ErrNotServing, the database's.
func (b *Backend) RefreshAuth(ctx context.Context) (*AuthRows, error) {
	if err := b.serving(); err != nil {
		return nil, err
	}
	if l := b.leading.Load(); l != nil && l.authority.valid() {
		return b.AuthRows(), nil
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	rows, err := b.auth.loads.get(ctx)
	return rows, b.publicError(ctx, err)
}

// LeaderAuth returns the newest users and roles, and the store's revision, if this
// node leads. Errors: ErrNotLeader, ErrNotServing, the database's.
func (b *Backend) LeaderAuth(ctx context.Context) (*AuthRows, int64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return nil, 0, err
	}
	if err := l.confirm(ctx); err != nil {
		return nil, 0, b.publicError(ctx, err)
	}
	return b.AuthRows(), b.Revision(), nil
}

// SyncAuth brings what this node knows of users and roles to where it was when the
// call began, at least. Errors: those of linearizable reads.
func (b *Backend) SyncAuth(ctx context.Context) (*AuthRows, error) {
	if _, err := b.boundFrontier(ctx, true); err != nil {
		return nil, err
	}
	return b.AuthRows(), nil
}

// AuthChange says how users and roles are after a change. Of those in the maps the
// values are the new ones; nil removes. The rows of tokens that are revoked are removed.
type AuthChange struct {
	Enabled               bool
	Revision              int64
	Users, Roles, Revoked map[string][]byte
}

// ChangeAuth changes users and roles in the pipeline, ordered with all writes, and
// returns the store's revision, which stays as it is. change is called on the
// sequencer with the rows as they are then, and returns nil for no change. It may be
// called again if nothing came of it. Errors: change's; ErrNotLeader and the like.
func (b *Backend) ChangeAuth(ctx context.Context, change func(*AuthRows) (*AuthChange, error)) (int64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return 0, err
	}
	c := &authCommand{change: change}
	if err := l.submit(ctx, c); err != nil {
		return 0, err
	}
	return c.revision, nil
}

type authCommand struct {
	change   func(*AuthRows) (*AuthChange, error)
	revision int64
}

func (c *authCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *authCommand) size() int                       { return 0 }

func (c *authCommand) evaluate(_ context.Context, st *stage) error {
	c.revision = st.revision()
	change, err := c.change(st.auth)
	if err != nil || change == nil {
		return err
	}
	next := st.auth.with(change)
	for _, k := range []struct {
		kind    coder.AuthKind
		changed map[string][]byte
	}{{coder.AuthUser, change.Users}, {coder.AuthRole, change.Roles}, {coder.AuthRevoked, change.Revoked}} {
		for name, value := range k.changed {
			if value != nil {
				value = coder.EncodeAuthValue(value)
			}
			st.setMeta(coder.EncodeAuthKey(k.kind, name), value)
		}
	}
	for hash, value := range change.Revoked {
		if value != nil {
			st.setMeta(coder.EncodeTokenKey(coder.TokenHash([]byte(hash))), nil)
		}
	}
	st.setMeta(coder.AuthSettingsKey(), coder.EncodeAuthSettings(next.AuthSettings))
	st.ownAuth = next
	return nil
}
