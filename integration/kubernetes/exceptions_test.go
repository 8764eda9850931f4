package kubernetes

import (
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// exceptions are the tests that are known to fail, by subject and by
// "package.Test", with the reason. A test that is listed and passes is told as a
// failure, so that the list does not outlive its reasons.
var exceptions = map[string]map[string]string{}

// judgeByClock are the tests that fail on a busy machine, with what they do.
var judgeByClock = map[string]string{
	"etcd3.TestCompact": "allows a compaction 100 ms",
	"cacher.TestWatch":  "allows 3 s for a hundred creations",
}

// TestExceptionsAreOfSubjects: no list of exceptions is for nobody.
func TestExceptionsAreOfSubjects(t *testing.T) {
	if enginetest.OnTiDB() {
		t.Skip("the subjects are others on TiDB")
	}
	for name := range exceptions {
		if !slices.ContainsFunc(sqlbrainSubjects(), func(s subject) bool { return s.name == name }) {
			t.Errorf("there is no subject %q", name)
		}
	}
}
