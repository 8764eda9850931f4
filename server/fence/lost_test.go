package fence

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func putRow(t *testing.T, store sqlstore.Store, key, value []byte) {
	t.Helper()
	batch := store.BeginBatchWrite()
	batch.Put(key, value)
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func lostRow(t *testing.T, store sqlstore.Store) coder.Lost {
	t.Helper()
	lost, _, err := LoadLost(t.Context(), store)
	if err != nil || lost == nil {
		t.Fatal(lost, err)
	}
	return *lost
}

func seenAt(chain coder.Chain) *Seen {
	s := NewSeen(func() int64 { return chain.Revision })
	s.Note(chain)
	return s
}

func TestLostRowKeepsTheNewestOfAllMembers(t *testing.T) {
	store := newStore(t)
	seen := coder.Chain{Sequence: 7, Term: 3, Revision: 5}
	r := NewLossRecorder(store, slog.New(slog.DiscardHandler), seenAt(seen), 8)
	for _, c := range []struct{ known, want coder.Lost }{
		{coder.Lost{Sequence: 1, Term: 9, Revision: 1, Member: 7}, coder.Lost{Sequence: 7, Term: 9, Revision: 5, Member: 8}},
		{coder.Lost{Sequence: 99, Term: 9, Revision: 99, Member: 7}, coder.Lost{Sequence: 99, Term: 9, Revision: 99, Member: 7}},
	} {
		putRow(t, store, coder.LostKey(), coder.EncodeLost(c.known))
		if err := r.record(t.Context(), recordTimeout); err != nil {
			t.Fatal(err)
		}
		got := lostRow(t, store)
		if got.At = 0; got != c.want {
			t.Errorf("%+v and %+v make %+v", c.known, seen, got)
		}
	}
}

func TestUnreadableLostRowIsALossAndIsReplaced(t *testing.T) {
	store := newStore(t)
	putRow(t, store, coder.LostKey(), []byte("?"))
	if err := CheckLost(t.Context(), store); !errors.Is(err, ErrDataLost) {
		t.Errorf("CheckLost: %v", err)
	}
	r := NewLossRecorder(store, slog.New(slog.DiscardHandler), seenAt(coder.Chain{Sequence: 7, Term: 3, Revision: 5}), 8)
	if err := r.record(t.Context(), recordTimeout); err != nil {
		t.Fatal(err)
	}
	if got := lostRow(t, store); got.Revision != 5 {
		t.Errorf("%+v", got)
	}
}

// TestLossStaysRecordedWhenTheChainRowGrows writes more than was lost after the loss was recorded.
func TestLossStaysRecordedWhenTheChainRowGrows(t *testing.T) {
	store := newStore(t)
	putRow(t, store, coder.ChainKey(), coder.EncodeChain(coder.Chain{Sequence: 3, Term: 2, Revision: 3}))
	r := NewLossRecorder(store, slog.New(slog.DiscardHandler), seenAt(coder.Chain{Sequence: 7, Term: 1, Revision: 5}), 8)
	if err := r.record(t.Context(), recordTimeout); err != nil {
		t.Fatal(err)
	}
	putRow(t, store, coder.ChainKey(), coder.EncodeChain(coder.Chain{Sequence: 500, Term: 2, Revision: 600}))
	if err := CheckLost(t.Context(), store); !errors.Is(err, ErrDataLost) {
		t.Errorf("CheckLost: %v", err)
	}
}

// laggingStore answers the first read of the chain row with what it held earlier.
type laggingStore struct {
	sqlstore.Store
	earlier []byte
}

func (s *laggingStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	if earlier := s.earlier; earlier != nil && string(key) == string(coder.ChainKey()) {
		s.earlier = nil
		return earlier, nil
	}
	return s.Store.Get(ctx, key)
}

// TestLossThatAReplicaSuggestsHasNoEffect: the commit finds that the database has lost nothing.
func TestLossThatAReplicaSuggestsHasNoEffect(t *testing.T) {
	store := &laggingStore{newStore(t), coder.EncodeChain(coder.Chain{Sequence: 3, Term: 1, Revision: 3})}
	putRow(t, store, coder.ChainKey(), coder.EncodeChain(coder.Chain{Sequence: 7, Term: 1, Revision: 5}))
	r := NewLossRecorder(store, slog.New(slog.DiscardHandler), seenAt(coder.Chain{Sequence: 7, Term: 1, Revision: 5}), 8)
	if err := r.record(t.Context(), recordTimeout); err != nil {
		t.Fatal(err)
	}
	if err := CheckLost(t.Context(), store); err != nil || store.earlier != nil {
		t.Errorf("CheckLost: %v", err)
	}
}

// A report just before the end of the process is still written.
func TestReportedLossIsWrittenAlthoughRunEnds(t *testing.T) {
	store := newStore(t)
	r := NewLossRecorder(store, slog.New(slog.DiscardHandler), seenAt(coder.Chain{Sequence: 7, Term: 3, Revision: 5}), 8)
	r.Report(sqlstore.ErrUnavailable) // no loss
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ended)
	if lost, _, err := LoadLost(t.Context(), store); lost != nil || err != nil {
		t.Fatalf("%+v, %v without a loss", lost, err)
	}
	r.Report(ErrDataLost)
	r.Report(ErrDataLost)
	r.Run(ended)
	if got := lostRow(t, store); got.Sequence != 7 || got.Term != 3 || got.Revision != 5 || got.Member != 8 {
		t.Errorf("%+v", got)
	}
}
