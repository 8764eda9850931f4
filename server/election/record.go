package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// record is what the lock row says: client-go's record, and beside its fields
// two of our own.
type record struct {
	resourcelock.LeaderElectionRecord
	// Incarnation is the process that wrote: it tells apart those that use one
	// identity, one after the other or by mistake at once.
	Incarnation string `json:"incarnation"`
	// TransferredBy is the identity that made another the holder; empty if the
	// holder wrote the record itself.
	TransferredBy string `json:"transferredBy,omitempty"`
	// HandedOver: the writer had led, and its Lead has returned; since then
	// nobody leads.
	HandedOver bool `json:"handedOver"`
}

// row is the lock row as it was read or written.
type row struct {
	record
	sequence int64
	raw      []byte // the value, for the next compare-and-swap
}

// encodeRow returns the row that replaces old, nil if there is none.
func encodeRow(old *row, rec record) (*row, error) {
	r := &row{record: rec, sequence: 1}
	if old != nil {
		r.sequence = old.sequence + 1
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encoding the lock record: %w", err)
	}
	r.raw = coder.EncodeLock(r.sequence, text)
	return r, nil
}

func decodeRow(raw []byte) (*row, error) {
	sequence, text, err := coder.DecodeLock(raw)
	if err != nil {
		return nil, err
	}
	r := &row{sequence: sequence, raw: raw}
	if err := json.Unmarshal(text, &r.record); err != nil {
		return nil, fmt.Errorf("decoding the lock record: %w", err)
	}
	return r, nil
}

// loadRow reads the row, nil if there is none.
func loadRow(ctx context.Context, store sqlstore.Store) (*row, error) {
	raw, err := store.Get(ctx, coder.LockKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return nil, nil
	}
	var r *row
	if err == nil {
		r, err = decodeRow(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the lock row: %w", err)
	}
	return r, nil
}

// ReadHolder returns the identity that the lock row names, "" if there is none: for
// whoever does not campaign. Errors are the store's.
func ReadHolder(ctx context.Context, store sqlstore.Store) (string, error) {
	r, err := loadRow(ctx, store)
	if r == nil || err != nil {
		return "", err
	}
	return r.HolderIdentity, nil
}
