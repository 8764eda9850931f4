// Package coder turns etcd's keys, versions and changes into rows of the one
// table sqlbrain has, and back.
//
// Every row is object(internal_key, object_value). The first four bytes of
// internal_key, its magic, say what kind of row it is:
//
//	version row  one version of one raw key, metadata and value; a tombstone has one once another version follows
//	index row    the newest version's metadata of one raw key
//	log row      what one commit changed, and when, by revision
//	lease row    one lease; attachment row: one key held by a lease
//	auth row, member row
//	meta row     fence row, lock row, compaction mark, claim row, removed row, counted row, counts row, job rows, alarms, identity
//
// Properties the rest of the program builds on, each held by a fuzz test:
//
//   - Coding is reversible for arbitrary bytes.
//   - compare(a, b) == compare(encode(a), encode(b)), so that an ordered range
//     of rows is an ordered range of keys.
//   - The version rows of keys made of bytes above '%' (every Kubernetes key)
//     are laid out as KubeBrain published it: magic, raw key, '$', revision.
//   - Index rows lie in a separate contiguous range, so that a list of
//     current objects never walks their history.
//
// Versioned rows: rows that are changed in place (index rows, the fence row and the lock
// row) have keys that end in eight zero bytes. After the format byte their values hold
// an 8-byte row version, and the one that they replace. A row version is never used twice
// for a row, so comparing row versions is comparing values; that is what lets a whole
// commit be one SQL statement. (A version row is another thing: it holds one version of a key.)
//
// Start reading at key.go, then value.go, log.go, meta.go, counts.go and job.go.
package coder
