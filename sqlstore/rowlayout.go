package sqlstore

import (
	"encoding/hex"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Where SQL finds things in rows, counted from 1; a test holds them to package
// coder's layout.
const (
	markAt     = "2,8"  // a marked value's own mark; an index row's ModRevision
	prevMarkAt = "10,8" // the mark it replaces
	flagsAt    = "42,1" // an index row's flags, of which the lowest bit is the tombstone's
	termAt     = "18,8" // the chain row's term
	zeroMark   = "x'0000000000000000'"
	chainKey   = "x'57fb8091636861696e0000000000000000'"
)

// versionMagic is the literal of the four bytes that version keys begin with;
// the rest of one is an index key from its fifth byte on, with the revision in
// place of the last eight.
var versionMagic = "x'" + hex.EncodeToString(coder.EncodeVersionKey(nil, 0)[:4]) + "'"
