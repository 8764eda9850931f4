package kubernetes

import (
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// exceptions are the tests that are known to fail, by subject and by
// "package.Test", with the reason. A listed test that passes is reported as a
// failure, so that the list stays current.
var exceptions = map[string]map[string]string{}

// judgeByClock are the tests that fail on a busy machine, with what they do.
var judgeByClock = map[string]string{
	"etcd3.TestCompact": "allows a compaction 100 ms",
	"cacher.TestWatch":  "allows 3 s for a hundred creations",
}

// TestExceptionsAreOfSubjects: every list of exceptions belongs to an existing subject.
func TestExceptionsAreOfSubjects(t *testing.T) {
	if enginetest.OnTiDB() {
		t.Skip("the subjects are others on TiDB")
	}
	for name := range exceptions {
		if !slices.ContainsFunc(sqlbrainSubjects(), func(s subject) bool { return s.name == name }) {
			t.Errorf("subject %q does not exist", name)
		}
	}
}
