package siege

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeaseJudgeFindsViolations: the judge accepts a lease's correct history, and
// rejects it after each single change.
func TestLeaseJudgeFindsViolations(t *testing.T) {
	const s = time.Second
	right := func() *Lease {
		return &Lease{
			ID: 7, TTL: 3, Keys: []string{"a", "b"},
			Calls: []LeaseCall{
				{Kind: GrantCall, Asked: 1 * s, Answered: 1 * s},
				{Kind: PutCall, Key: "a", Asked: 1 * s, Answered: 1 * s},
				{Kind: PutCall, Key: "b", Asked: 1 * s, Answered: 1 * s},
				{Kind: RenewCall, Asked: 3 * s, Answered: 5 * s},
				{Kind: RenewCall, Asked: 5 * s, Answered: 5 * s, Err: "timeout"},
				{Kind: GetCall, Key: "a", Asked: 6 * s, Answered: 7 * s, Gone: true},
				{Kind: RenewCall, Asked: 7 * s, Answered: 8 * s, Gone: true},
			},
			Deleted: []LeaseDeletion{{"a", 9, 6 * s, 0}, {"b", 9, 6 * s, 0}, {"a", 9, 7 * s, 1}, {"b", 9, 7 * s, 1}},
		}
	}
	require.Empty(t, right().Judge())
	for name, c := range map[string]struct {
		change func(*Lease)
		want   string
	}{
		"a deletion is early":        {func(l *Lease) { l.Deleted[1].At-- }, "node0's watch shows b deleted"},
		"a read finds nothing early": {func(l *Lease) { l.Calls[5].Answered = 6*s - 1 }, "a get through node0"},
		"a renewal finds nothing early": {func(l *Lease) {
			l.Calls[6].Asked, l.Calls[6].Answered = 5*s, 6*s-1
		}, "a renew through node0"},
		"a renewal after the end is acknowledged": {func(l *Lease) { l.Calls[6].Gone = false }, "deleted at revision 9"},
		"an unanswered renewal was acknowledged":  {func(l *Lease) { l.Calls[4].Err = "" }, "deleted at revision 9"},
		"a key stays":                             {func(l *Lease) { l.Deleted = slices.Delete(l.Deleted, 1, 4) }, "no watch shows that b was deleted"},
		"all keys stay":                           {func(l *Lease) { l.Deleted = nil }, "no watch shows that a was deleted"},
		"keys end one after the other":            {func(l *Lease) { l.Deleted[3].Revision++ }, "a was deleted at revision 9, b at revision 10"},
		"it is revoked after the deletion": {func(l *Lease) {
			l.Calls = append(l.Calls, LeaseCall{Kind: RevokeCall, Asked: 4*s - 1, Answered: 4 * s})
			l.Deleted[0].At = 4*s - 2
		}, "a deleted at revision 9"},
	} {
		t.Run(name, func(t *testing.T) {
			l := right()
			c.change(l)
			wrong := l.Judge()
			require.NotEmpty(t, wrong, "%s", l)
			require.Contains(t, wrong[0], c.want)
		})
	}
	revoked := right()
	revoked.Calls = append(revoked.Calls, LeaseCall{Kind: RevokeCall, Asked: 3*s + 1, Answered: 4 * s, Err: "timeout"})
	for i := range revoked.Deleted {
		revoked.Deleted[i].At = 3*s + 2
	}
	require.Empty(t, revoked.Judge(), "a lease may end once its client has asked for that")
}
