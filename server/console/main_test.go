package console

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testViewer has fingerprints that a test can tell.
var testViewer = viewer{fingerprint: func(b []byte) string { return "of " + string(b[:1]) }}
