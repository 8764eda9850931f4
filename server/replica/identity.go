package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// identity holds the ids in every response header. They are random, not zero, and stored in
// the table when they are first needed.
type identity struct{ cluster, member uint64 }

type identityRow struct {
	ID uint64 `json:"id"`
}

// ClusterID identifies the table's content.
func (r *Replica) ClusterID() uint64 { return r.identity.cluster }

// MemberID identifies this node by its name.
func (r *Replica) MemberID() uint64 { return r.identity.member }

func loadIdentity(ctx context.Context, store sqlstore.Store, name string) (identity, error) {
	cluster, err := loadOrCreateID(ctx, store, coder.IdentityKey())
	if err != nil {
		return identity{}, fmt.Errorf("reading the cluster's identity: %w", err)
	}
	member, err := loadOrCreateID(ctx, store, coder.EncodeMemberKey(name))
	if err != nil {
		return identity{}, fmt.Errorf("reading member %q: %w", name, err)
	}
	return identity{cluster: cluster, member: member}, nil
}

func loadOrCreateID(ctx context.Context, store sqlstore.Store, key []byte) (uint64, error) {
	for {
		raw, err := store.Get(ctx, key)
		if err == nil {
			var row identityRow
			if err := json.Unmarshal(raw, &row); err != nil {
				return 0, err
			}
			if row.ID == 0 {
				return 0, errors.New("the stored id is 0")
			}
			return row.ID, nil
		}
		if !errors.Is(err, sqlstore.ErrKeyNotFound) {
			return 0, err
		}
		row := identityRow{ID: rand.Uint64() | 1}
		raw, err = json.Marshal(row)
		if err != nil {
			return 0, err
		}
		batch := store.BeginBatchWrite()
		batch.PutIfNotExist(key, raw)
		if err = batch.Commit(ctx); err != nil && !sqlstore.IsConflict(err) {
			return 0, err
		}
		// This node, or another one, has written it. Read it.
	}
}
