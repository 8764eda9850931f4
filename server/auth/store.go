package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Node is the node that a Store belongs to.
type Node interface {
	// Stopped returns why the node serves nothing, nil while it serves.
	Stopped() error
	// Revision returns the newest visible revision.
	Revision() int64
	// ReadRevision returns the revision to read at, if as permits the request there. A
	// linearizable one includes every write, and every change of users and roles,
	// acknowledged before the call.
	ReadRevision(ctx context.Context, as Permit, linearizable bool) (int64, error)
	// HoldsReadLease reports whether the node leads, and no other can have acknowledged anything.
	HoldsReadLease() bool
	// VerifyLeader returns nil if the node leads and as permits the request.
	VerifyLeader(ctx context.Context, as Permit) error
	// Submit executes change in the write pipeline, if the node leads and as permits it.
	Submit(ctx context.Context, as Permit, change func(Tx) error) error
}

// Store answers requests for users, roles and tokens, and changes them in the write pipeline.
// Safe for concurrent use.
type Store struct {
	*Users
	node    Node
	log     *slog.Logger
	timeout *mvcc.Timeout
	loads   *coalesce.Group[*Rows]
	tokens  atomic.Pointer[Tokens] // of the newest leadership
}

// NewStore returns the Store of a node, with users and roles at version 0. Requests, and each read
// that they share, end after timeout. The caller must close it.
func NewStore(store sqlstore.Store, node Node, timeout time.Duration, log *slog.Logger) *Store {
	s := &Store{Users: NewUsers(store), node: node, log: log, timeout: mvcc.NewTimeout(timeout)}
	s.loads = coalesce.New(timeout, s.Load)
	return s
}

// Close ends the reads under way. Later requests that read the table return reason.
func (s *Store) Close(reason error) { s.loads.Close(reason) }

// LoadVersion makes sure that this node knows the users and roles of a version that the leader
// has reported. Later commits must not be visible before.
func (s *Store) LoadVersion(ctx context.Context, version int64) error {
	if version <= s.Rows().Version {
		return nil
	}
	rows, err := s.loads.Get(ctx)
	if err == nil && rows.Version < version {
		err = fmt.Errorf("users and roles are at version %d in the table, the leader reported %d", rows.Version, version)
	}
	return err
}

// Refresh returns the newest users and roles: those in the table, on a follower. Errors:
// mvcc.ErrNotServing, the database's.
func (s *Store) Refresh(ctx context.Context) (*Rows, error) {
	if err := s.node.Stopped(); err != nil {
		return nil, err
	}
	if s.node.HoldsReadLease() {
		return s.Rows(), nil
	}
	ctx, cancel := s.timeout.Bound(ctx)
	defer cancel()
	rows, err := s.loads.Get(ctx)
	return rows, mvcc.PublicError(ctx, err)
}

// Sync returns users and roles that include every change acknowledged before the call.
// Errors: those of linearizable reads.
func (s *Store) Sync(ctx context.Context) (*Rows, error) {
	if _, err := s.node.ReadRevision(ctx, System, true); err != nil {
		return nil, err
	}
	return s.Rows(), nil
}

// OfLeader returns the newest users and roles, and the store's revision, if this node leads.
// Errors: mvcc.ErrNotLeader, mvcc.ErrNotServing, the database's.
func (s *Store) OfLeader(ctx context.Context) (rows *Rows, revision int64, err error) {
	if err := s.node.VerifyLeader(ctx, System); err != nil {
		return nil, 0, err
	}
	return s.Rows(), s.node.Revision(), nil
}

// Change changes users and roles in the pipeline, ordered with all writes, and returns the
// store's revision, which does not change. change is called on the sequencer with the current
// rows, and returns nil for no change. It may be called again if its change was not committed.
// Errors: change's; mvcc.ErrNotLeader and the like.
func (s *Store) Change(ctx context.Context, as Permit,
	change func(*Rows) (*Change, error)) (int64, error) {
	var revision int64
	err := s.node.Submit(ctx, as, func(tx Tx) error {
		revision = tx.Revision()
		return Apply(tx, change)
	})
	if err != nil {
		return 0, err // revision may still be written to
	}
	return revision, nil
}

// LoadTokens reads the tokens from table, whose rows expire after ttl from now on. A node that
// begins to lead calls it.
func (s *Store) LoadTokens(ctx context.Context, table sqlstore.Store, ttl time.Duration) error {
	tokens, err := LoadTokens(ctx, table, ttl)
	s.tokens.Store(tokens)
	return err
}

// IssueToken makes a token in etcd's form, see Tokens.Issue, and makes it known to all nodes.
// describe is called on the sequencer. IssueToken also returns the store's revision. Errors:
// describe's; mvcc.ErrNotLeader and the like.
func (s *Store) IssueToken(ctx context.Context, as Permit, prefix string,
	describe func(*Rows) (coder.Token, error)) (string, int64, error) {
	var token string
	var revision int64
	err := s.node.Submit(ctx, as, func(tx Tx) (err error) {
		revision = tx.Revision()
		token, err = s.tokens.Load().Issue(tx, prefix, describe)
		return err
	})
	if err != nil {
		return "", 0, err // token and revision may still be written to
	}
	return token, revision, nil
}

// LookupToken returns the row of a token; found is false if the table does not have it. Errors:
// mvcc.ErrNotServing, the database's.
func (s *Store) LookupToken(ctx context.Context, h coder.TokenHash) (row coder.Token, found bool, err error) {
	if err := s.node.Stopped(); err != nil {
		return row, false, err
	}
	ctx, cancel := s.timeout.Bound(ctx)
	defer cancel()
	row, found, err = LookupToken(ctx, s.store, h)
	return row, found, mvcc.PublicError(ctx, err)
}

// SweepTokens removes the rows of expired tokens while the node leads, until ctx ends.
func (s *Store) SweepTokens(ctx context.Context) {
	s.tokens.Load().Sweep(ctx, func(ctx context.Context, remove func(Tx)) error {
		err := s.node.Submit(ctx, System, func(tx Tx) error { remove(tx); return nil })
		if err != nil && ctx.Err() == nil && !errors.Is(err, mvcc.ErrNotLeader) && !errors.Is(err, mvcc.ErrNotServing) {
			s.log.Warn("removing expired tokens failed, trying again", "error", err)
		}
		return err
	})
}
