package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlansAreConsistent(t *testing.T) {
	for _, o := range []Options{Full, Quick, Tiny, Scoreboard} {
		done := map[string]bool{}
		for _, s := range o.Steps() {
			require.False(t, done[s.ID], "%s twice", s.ID)
			require.True(t, s.Needs == "" || done[s.Needs], "%s comes before %s", s.ID, s.Needs)
			require.Equal(t, s.Workload, s.Config.Workload, s.ID)
			if !s.Prepares {
				require.NotEmpty(t, s.Phase, s.ID)
			}
			done[s.ID] = true
		}
	}
}
