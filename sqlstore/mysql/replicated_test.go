package mysql

import (
	"errors"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestASessionThatWasResetIsRefused: one that would read before it has what was
// committed elsewhere.
func TestASessionThatWasResetIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		vars map[string]string
		fit  bool
	}{
		{nil, true},
		{map[string]string{"wsrep_on": "OFF", "wsrep_sync_wait": "0"}, true},
		{map[string]string{"wsrep_on": "ON", "wsrep_sync_wait": "1", "wsrep_dirty_reads": "OFF"}, true},
		{map[string]string{"wsrep_on": "ON", "wsrep_sync_wait": "15"}, true},
		{map[string]string{"wsrep_on": "ON", "wsrep_sync_wait": "6"}, false},
		{map[string]string{"wsrep_on": "ON", "wsrep_sync_wait": "1", "wsrep_dirty_reads": "ON"}, false},
		{map[string]string{"group_replication_group_name": "", "group_replication_consistency": "EVENTUAL"}, true},
		{map[string]string{"group_replication_group_name": "g", "group_replication_consistency": "EVENTUAL"}, false},
		{map[string]string{"group_replication_group_name": "g", "group_replication_consistency": "BEFORE_ON_PRIMARY_FAILOVER"}, true},
	} {
		if err := checkReplicated(c.vars); (err == nil) != c.fit || err != nil && !errors.Is(err, sqlstore.ErrUnfit) {
			t.Errorf("%v: %v", c.vars, err)
		}
	}
}
