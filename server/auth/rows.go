package auth

import (
	"maps"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Rows is all that the table holds of users and roles, at one version. It must not be
// changed. The values are etcd's messages.
type Rows struct {
	coder.AuthSettings
	Users, Roles map[string][]byte // by name
	// Revoked are the tokens that were revoked before their expiry, by their hashes.
	Revoked map[string][]byte
}

// NewRows returns the rows of a table without users and roles, at version 0.
func NewRows() *Rows {
	return &Rows{Users: map[string][]byte{}, Roles: map[string][]byte{}, Revoked: map[string][]byte{}}
}

// Change is a change of users and roles. The maps hold the new values; nil removes an
// entry. The rows of revoked tokens are removed.
type Change struct {
	Enabled               bool
	Revision              int64
	Users, Roles, Revoked map[string][]byte
}

// With returns the rows after c, at the next version.
func (r *Rows) With(c *Change) *Rows {
	next := &Rows{AuthSettings: r.AuthSettings, Users: maps.Clone(r.Users), Roles: maps.Clone(r.Roles),
		Revoked: maps.Clone(r.Revoked)}
	next.Version++
	next.Enabled, next.Revision = c.Enabled, c.Revision
	if r.Enabled && !c.Enabled {
		next.Epoch++
	}
	for _, k := range []struct{ rows, changed map[string][]byte }{{next.Users, c.Users}, {next.Roles, c.Roles},
		{next.Revoked, c.Revoked}} {
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
