package tidbsim

import (
	"slices"

	"github.com/google/btree"
)

// A row holds its columns; nil means that the row does not exist. A value is nil, int64,
// uint64 or []byte.
type row []any

// version is a row as of a commit.
type version struct {
	commit uint64
	row    row
}

// record is the history of a key, oldest first. It may be empty while a transaction has the
// key in its buffer.
type record struct {
	key      string
	versions []version
}

// at returns the row at a snapshot.
func (r *record) at(ts uint64) row {
	for i := len(r.versions) - 1; i >= 0; i-- {
		if r.versions[i].commit <= ts {
			return r.versions[i].row
		}
	}
	return nil
}

// newest returns the commit timestamp of the newest version; 0 if there is none.
func (r *record) newest() uint64 {
	if len(r.versions) == 0 {
		return 0
	}
	return r.versions[len(r.versions)-1].commit
}

// collect removes the versions that no snapshot at or after safePoint sees.
func (r *record) collect(safePoint uint64) {
	keep := 0
	for i, v := range r.versions {
		if v.commit <= safePoint {
			keep = i
		}
	}
	r.versions = slices.Delete(r.versions, 0, keep)
}

type column struct {
	name, dataType string
	length         int64 // of strings, in bytes
	notNull        bool
}

type table struct {
	id      int64
	name    string
	columns []column
	pk      int
	// changed is the schema version of the last DDL on the table.
	changed int64
	rows    *btree.BTreeG[*record]
	// regions are the keys at which regions begin, in order, without the first.
	regions []string
}

func newTable(id int64, name string) *table {
	return &table{id: id, name: name, rows: btree.NewG(32, func(a, b *record) bool { return a.key < b.key })}
}

// find returns the record of key, which it makes if there is none.
func (t *table) find(key string) *record {
	if r, ok := t.rows.Get(&record{key: key}); ok {
		return r
	}
	r := &record{key: key}
	t.rows.ReplaceOrInsert(r)
	return r
}

// forget removes the record of key if it holds nothing.
func (t *table) forget(key string) {
	if r, ok := t.rows.Get(&record{key: key}); ok && len(r.versions) == 0 {
		t.rows.Delete(r)
	}
}

// region returns the number of the region that holds key.
func (t *table) region(key string) int {
	n, found := slices.BinarySearch(t.regions, key)
	if found {
		n++
	}
	return n
}

// encodedSize is about what TiKV stores for a row: the table's prefix, the clustered key
// in groups of eight bytes and a marker (util/codec, EncodeBytes), and the values.
func encodedSize(key string, r row) int {
	n := 11 + 1 + (len(key)/8+1)*9
	for _, v := range r {
		n += 8
		if b, ok := v.([]byte); ok && string(b) != key {
			n += len(b)
		}
	}
	return n
}
