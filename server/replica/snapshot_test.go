package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
)

// A tombstone, and the version before it, may be taken by compaction between the
// reading of one and of the other: the version must not come back to life. Nor may the
// snapshot lose anything if other versions of the key follow.
func TestSnapshotDuringCompaction(t *testing.T) {
	for name, recreated := range map[string]bool{"deleted for good": false, "created again": true} {
		t.Run(name, func(t *testing.T) {
			store := &turning{Store: newStore(t)}
			b := open(t, store, nil)
			mustTxn(t, b, put("a", "1")) // revision 2
			mustTxn(t, b, del("a"))
			mustTxn(t, b, put("b", "1"))
			if recreated {
				mustTxn(t, b, put("a", "2"))
			}
			mustTxn(t, b, put("b", "2"))
			tombstone := coder.EncodeIndexKey([]byte("a"))
			if recreated {
				tombstone = coder.EncodeVersionKey([]byte("a"), 3)
			}
			left := store.rows(t, coder.EncodeVersionKey([]byte("a"), 2), tombstone)
			s, err := b.Exporter.OpenSnapshot(t.Context(), auth.System)
			if err != nil {
				t.Fatal(err)
			}
			mustCompact(t, b, 4, true)
			removed := store.removeWhileRead(t, left)
			var versions []export.Version
			compacted, err := s.Versions(t.Context(), func(v export.Version) error {
				versions = append(versions, v)
				return nil
			})
			if err != nil || !*removed {
				t.Fatal(err, *removed)
			}
			var found []string
			for _, v := range versions {
				if v.Needed(compacted) {
					found = append(found, fmt.Sprintf("%s@%d", v.Key, v.ModRevision))
				}
			}
			slices.Sort(found)
			want := []string{"b@4", "b@5"}
			if recreated {
				want = []string{"a@5", "b@4", "b@6"}
			}
			if !slices.Equal(found, want) {
				t.Errorf("%v; want %v", found, want)
			}
		})
	}
}

// A deleted key may be created again after its only version was read: the snapshot still ends that version.
func TestSnapshotOfAKeyThatIsCreatedAgain(t *testing.T) {
	store := &turning{Store: newStore(t)}
	b := open(t, store, nil)
	mustTxn(t, b, put("a", "1")) // revision 2
	mustTxn(t, b, del("a"))
	s, err := b.Exporter.OpenSnapshot(t.Context(), auth.System)
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	store.between = func(read int) {
		if read == 1 { // the last page of version rows
			store.between = nil
			mustTxn(t, b, put("a", "2"))
			mustTxn(t, b, put("a", "3"))
		}
	}
	if _, err := s.Versions(t.Context(), func(v export.Version) error {
		versions = append(versions, fmt.Sprintf("%s@%d-%d", v.Key, v.ModRevision, v.Next))
		return nil
	}); err != nil || store.between != nil {
		t.Fatal(err)
	}
	if want := []string{"a@2-3", "a@3-0"}; !slices.Equal(versions, want) {
		t.Errorf("%v; want %v", versions, want)
	}
}

func TestSnapshotOvertakenByCompactionFails(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustTxn(t, b, put("a", "1"))
	s, err := b.Exporter.OpenSnapshot(t.Context(), auth.System)
	if err != nil {
		t.Fatal(err)
	}
	mustTxn(t, b, put("a", "2"))
	mustCompact(t, b, 3, true)
	if _, err := s.Versions(t.Context(), func(export.Version) error { return nil }); !errors.Is(err, mvcc.ErrCompacted) {
		t.Error(err)
	}
}
