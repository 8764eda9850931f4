package sqldb

import (
	"encoding/hex"

	"github.com/sqlbrain/sqlbrain/coder"
)

// The places of fields in rows, for SQL's SUBSTRING: the first byte, counted from 1, and the
// length. A test compares them with package coder.
const (
	RowVersionAt     = "2,8"  // a versioned value's own row version; an index row's ModRevision
	PrevRowVersionAt = "10,8" // the row version it replaces
	FlagsAt          = "42,1" // an index row's flags, of which the lowest bit is the tombstone's
	TermAt           = "18,8" // the fence row's term
	ZeroRowVersion   = "x'0000000000000000'"
	FenceKey         = "x'57fb809166656e63650000000000000000'"
)

// VersionMagic is the literal of the four bytes that version keys begin with. The rest of a
// version key is that of the index key, with the revision in place of the last eight bytes.
var VersionMagic = "x'" + hex.EncodeToString(coder.EncodeVersionKey(nil, 0)[:4]) + "'"
