package repair

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

// TestReplacedRevisionSurvivesInterruption: the restore that follows an interrupted one knows what that one replaced.
func TestReplacedRevisionSurvivesInterruption(t *testing.T) {
	store := newTable(t)
	store.fill(2, 9)
	// A server noticed that the revisions up to 20 are lost.
	store.put(coder.DataLossKey(), coder.EncodeDataLoss(coder.DataLoss{Sequence: 40, Term: 5, Revision: 20, Member: 1}))
	_, err := FindPrevious(t.Context(), store, false)
	require.ErrorIs(t, err, ErrNotEmpty)
	before := store.token()

	p, err := FindPrevious(t.Context(), store, true)
	require.NoError(t, err)
	require.EqualValues(t, 20, p.Revision)
	require.Equal(t, before, store.token(), "it was only looked at")
	r, err := p.Begin(t.Context(), store, -1)
	require.NoError(t, err)
	require.Greater(t, store.token().Term, int64(5), "what led is fenced")
	require.Greater(t, store.token().Sequence, int64(40))
	require.NoError(t, r.Put(t.Context(), &coder.Record{Key: []byte("k"), CreateRevision: 30, ModRevision: 30,
		Version: 1}))
	require.NoError(t, r.flush(t.Context()))

	p, err = FindPrevious(t.Context(), store, false)
	require.NoError(t, err)
	require.EqualValues(t, 20, p.Revision)
	raised, err := p.Raise(3)
	require.NoError(t, err)
	require.EqualValues(t, 20+DefaultBump, raised)
	raised, err = p.Raise(50)
	require.NoError(t, err)
	require.EqualValues(t, 50+DefaultBump, raised)
	r, err = p.Begin(t.Context(), store, raised)
	require.NoError(t, err)
	_, revision, err := r.Finish(t.Context(), raised, nil)
	require.NoError(t, err)
	require.Equal(t, raised, revision)
	require.NoError(t, RefuseUnfinished(t.Context(), store))
	found := store.examine()
	require.Zero(t, found.Keys)
	require.Nil(t, found.Marker)
	require.Equal(t, raised, found.CompactRevision)
}

func TestReplaceNoticesAServer(t *testing.T) {
	store := newTable(t)
	store.fill(2, 9)
	p, err := FindPrevious(t.Context(), store, true)
	require.NoError(t, err)
	store.fill(10, 10)
	_, err = p.Begin(t.Context(), store, -1)
	require.ErrorIs(t, err, ErrFenceMoved)
	require.NoError(t, RefuseUnfinished(t.Context(), store))
	require.EqualValues(t, 10, store.examine().Newest())
}

// TestNothingWasSeenOfATableWithoutRevisions, and so the revision need not be raised.
func TestNothingWasSeenOfATableWithoutRevisions(t *testing.T) {
	for name, fill := range map[string]func(table){
		"empty":    func(table) {},
		"no token": func(s table) { s.put(coder.IdentityKey(), coder.EncodeInt64(7)) },
		"new": func(s table) {
			s.put(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 1, Term: 1, Revision: 1}))
		},
		"interrupted": func(s table) { require.NoError(t, errOf(BeginRestore(t.Context(), s, -1))) },
	} {
		t.Run(name, func(t *testing.T) {
			store := newTable(t)
			fill(store)
			p, err := FindPrevious(t.Context(), store, true)
			require.NoError(t, err)
			require.Zero(t, p.Revision)
			raised, err := p.Raise(5)
			require.NoError(t, err)
			require.EqualValues(t, 5, raised)
			r, err := p.Begin(t.Context(), store, -1)
			require.NoError(t, err)
			_, revision, err := r.Finish(t.Context(), raised, nil)
			require.NoError(t, err)
			require.EqualValues(t, 5, revision)
		})
	}
}

func errOf(_ *Restore, err error) error { return err }
