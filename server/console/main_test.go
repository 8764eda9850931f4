package console

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// testViewer has fingerprints that a test can tell.
var testViewer = viewer{fingerprint: func(b []byte) string { return "of " + string(b[:1]) }}
