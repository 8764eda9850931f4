package backend

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

// A tombstone, and the version before it, may be taken by compaction between the
// reading of one and of the other: the version must not come back to life. Nor may the
// snapshot lose anything if other versions of the key follow.
func TestASnapshotWhileCompactionRemovesRows(t *testing.T) {
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
			left := store.versions(t, "a", 2, 3)
			s, err := b.OpenSnapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Compact(t.Context(), 4, true); err != nil {
				t.Fatal(err)
			}
			removed := store.removeWhileRead(t, left)
			var versions []SnapshotVersion
			compacted, err := s.Versions(t.Context(), func(v SnapshotVersion) error {
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

// A lease that comes and goes while a snapshot is opened is not missing from keys that
// have it, and one that has none comes over only if it is there.
func TestLeasesOfASnapshot(t *testing.T) {
	store := &turning{Store: newStore(t)}
	b := open(t, store, nil)
	mustGrant(t, b, 7, 500)
	mustGrant(t, b, 8, 500)
	mustTxn(t, b, putLeased("kept", 7))
	s, err := b.OpenSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	delete(s.leases, coder.Lease{ID: 7, TTL: 500})
	s.leases[coder.Lease{ID: 8, TTL: 500}] = false
	if _, err := s.Versions(t.Context(), func(SnapshotVersion) error { return nil }); err != nil {
		t.Fatal(err)
	}
	leases := s.Leases()
	if len(leases) != 1 || leases[0] != (coder.Lease{ID: 7, TTL: passingLease}) {
		t.Errorf("%+v", leases)
	}
}

func TestCompactionThatOvertakesASnapshot(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustTxn(t, b, put("a", "1"))
	s, err := b.OpenSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustTxn(t, b, put("a", "2"))
	if _, err := b.Compact(t.Context(), 3, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Versions(t.Context(), func(SnapshotVersion) error { return nil }); !errors.Is(err, ErrCompacted) {
		t.Error(err)
	}
}
