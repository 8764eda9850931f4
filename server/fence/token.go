package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var (
	// ErrDeposed says that another process took the leadership of the table.
	ErrDeposed = errors.New("another server took over this datastore")
	// ErrDataLost says that the fence row is gone, or older than what was acknowledged.
	ErrDataLost = errors.New("the database lost committed data")
)

const (
	// RecoveredTerms and RecoveredSequences are what a recovery adds to the fence row's
	// term and sequence. Some of both may have been lost as well. A server that still
	// runs, or a late packet, must not find the value that it expects.
	RecoveredTerms     = 1 << 20
	RecoveredSequences = 1 << 50
)

// LoadToken returns the value of the fence row, decoded and as stored, of a table that need not have one.
// Errors: sqlstore.ErrKeyNotFound, the database's.
func LoadToken(ctx context.Context, store sqlstore.Store) (cur coder.FenceToken, raw []byte, err error) {
	if raw, err = store.Get(ctx, coder.FenceKey()); err == nil {
		cur, err = coder.DecodeFenceToken(raw)
	}
	if err != nil {
		return cur, nil, fmt.Errorf("reading the fence row: %w", err)
	}
	return cur, raw, nil
}

// readToken returns the value of the fence row of a leader's table, decoded and as stored.
// Errors: ErrDataLost if the row is gone or cannot be decoded, the database's.
func readToken(ctx context.Context, store sqlstore.Store) (cur coder.FenceToken, raw []byte, err error) {
	raw, err = store.Get(ctx, coder.FenceKey())
	if err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound) {
		return cur, nil, err
	}
	cur, err = decodeToken(raw)
	return cur, raw, err
}

// decodeToken returns what the fence row of a leader's table holds, or ErrDataLost if it is gone, nil, or
// cannot be decoded.
func decodeToken(raw []byte) (coder.FenceToken, error) {
	if raw == nil {
		return coder.FenceToken{}, fmt.Errorf("%w: the fence row is gone", ErrDataLost)
	}
	cur, err := coder.DecodeFenceToken(raw)
	if err != nil {
		return cur, fmt.Errorf("%w: %w", ErrDataLost, err)
	}
	return cur, nil
}

// CheckToken compares cur, what the fence row holds, with held, what is known to have been
// in it before. It returns nil, ErrDeposed with both terms, or ErrDataLost with both
// values. Terms, sequences and revisions never decrease, whichever server leads: a
// later term that begins below an acknowledged revision has lost that revision.
func CheckToken(held, cur coder.FenceToken) error {
	switch {
	case cur.Sequence < held.Sequence || cur.Revision < held.Revision || cur.Term < held.Term:
		return fmt.Errorf("%w: revision %d was acknowledged, the database is at %d (term %d, sequence %d; expected term "+
			"%d, sequence %d)",
			ErrDataLost, held.Revision, cur.Revision, cur.Term, cur.Sequence, held.Term, held.Sequence)
	case cur.Term > held.Term:
		return fmt.Errorf("%w: it is at term %d, this server at %d", ErrDeposed, cur.Term, held.Term)
	default:
		return nil
	}
}

// CheckMarker returns ErrDataLost if the fence row's value cur is older than what the
// data loss marker says was seen.
func CheckMarker(lost coder.DataLoss, cur coder.FenceToken) error {
	err := CheckToken(coder.FenceToken{Sequence: lost.Sequence, Term: lost.Term, Revision: lost.Revision}, cur)
	if errors.Is(err, ErrDataLost) {
		return fmt.Errorf("%w; member %x found that at %s; see sqlbrain recover", err, lost.Member,
			time.Unix(lost.At, 0).UTC().Format(time.RFC3339))
	}
	return nil
}
