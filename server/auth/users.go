package auth

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Users holds the users and roles as a node knows them: the newest ones on the leader, and
// on a follower those that the table had at its last Load. Safe for concurrent use.
type Users struct {
	store   sqlstore.Store
	current atomic.Pointer[Rows]
}

// NewUsers returns users and roles at version 0.
func NewUsers(store sqlstore.Store) *Users {
	u := &Users{store: store}
	u.current.Store(NewRows())
	return u
}

// Rows returns the users and roles that the node knows.
func (u *Users) Rows() *Rows { return u.current.Load() }

// Load reads the rows of the table, and returns them, or newer ones. It reads only the
// settings if the version is known. The settings are read before and after the other rows:
// only if they are equal do the rows belong to one version.
func (u *Users) Load(ctx context.Context) (*Rows, error) {
	before, err := u.settings(ctx)
	for err == nil {
		if known := u.Rows(); before.Version <= known.Version {
			return known, nil
		}
		rows := &Rows{AuthSettings: before}
		if rows.Users, err = u.values(ctx, coder.AuthUser); err != nil {
			break
		}
		if rows.Roles, err = u.values(ctx, coder.AuthRole); err != nil {
			break
		}
		if rows.Revoked, err = u.values(ctx, coder.AuthRevoked); err != nil {
			break
		}
		var after coder.AuthSettings
		if after, err = u.settings(ctx); err == nil && after == before {
			return u.Raise(rows), nil
		}
		before = after
	}
	return nil, fmt.Errorf("reading users and roles: %w", err)
}

// Knows reports whether the node knows the users and roles of a settings row, nil if there is none.
func (u *Users) Knows(settings []byte) (bool, error) {
	s, err := decodeSettings(settings)
	return s.Version <= u.Rows().Version, err
}

func (u *Users) settings(ctx context.Context) (coder.AuthSettings, error) {
	raw, err := u.store.Get(ctx, coder.AuthSettingsKey())
	if err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound) {
		return coder.AuthSettings{}, err
	}
	return decodeSettings(raw)
}

// decodeSettings decodes a settings row, nil if there is none.
func decodeSettings(raw []byte) (coder.AuthSettings, error) {
	if raw == nil {
		return coder.AuthSettings{}, nil
	}
	return coder.DecodeAuthSettings(raw)
}

func (u *Users) values(ctx context.Context, kind coder.AuthKind) (map[string][]byte, error) {
	lo, hi := coder.AuthBounds(kind)
	values := make(map[string][]byte)
	for row, err := range u.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, err
		}
		_, name, err := coder.DecodeAuthKey(row.Key)
		if err != nil {
			return nil, err
		}
		content, err := coder.DecodeAuthValue(row.Value)
		if err != nil {
			return nil, err
		}
		values[name] = append([]byte(nil), content...)
	}
	return values, nil
}

// Raise makes rows the current ones unless newer ones are known, and returns the newest.
func (u *Users) Raise(rows *Rows) *Rows {
	for {
		known := u.Rows()
		if rows.Version <= known.Version {
			return known
		}
		if u.current.CompareAndSwap(known, rows) {
			return rows
		}
	}
}

// Tx is the transaction of the write pipeline that changes users, roles and tokens.
type Tx interface {
	// AuthRows returns the users and roles after all earlier changes.
	AuthRows() *Rows
	// SetAuth replaces them.
	SetAuth(rows *Rows)
	// SetRow writes a row; a nil value removes it.
	SetRow(key, value []byte)
	// Revision returns the newest revision.
	Revision() int64
	// Sequence returns the number of the commit.
	Sequence() int64
	// OnCommit registers f to be called after the commit.
	OnCommit(f func())
}

// Apply makes a change of users and roles in tx. change is called with the current rows, and
// returns nil for no change. Its error is that of Apply.
func Apply(tx Tx, change func(*Rows) (*Change, error)) error {
	c, err := change(tx.AuthRows())
	if err != nil || c == nil {
		return err
	}
	next := tx.AuthRows().With(c)
	for _, k := range []struct {
		kind    coder.AuthKind
		changed map[string][]byte
	}{{coder.AuthUser, c.Users}, {coder.AuthRole, c.Roles}, {coder.AuthRevoked, c.Revoked}} {
		for name, value := range k.changed {
			if value != nil {
				value = coder.EncodeAuthValue(value)
			}
			tx.SetRow(coder.EncodeAuthKey(k.kind, name), value)
		}
	}
	for hash, value := range c.Revoked {
		if value != nil {
			tx.SetRow(coder.EncodeTokenKey(coder.TokenHash([]byte(hash))), nil)
		}
	}
	tx.SetRow(coder.AuthSettingsKey(), coder.EncodeAuthSettings(next.AuthSettings))
	tx.SetAuth(next)
	return nil
}
