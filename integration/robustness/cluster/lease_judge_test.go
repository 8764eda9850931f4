package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leaseHistory is what one lease's client did and saw, and what watches saw of the
// lease's keys. Times count from the start of the round.
type leaseHistory struct {
	id, ttl int64
	keys    []string
	calls   []leaseCall
	deleted []leaseDeletion
}

// leaseCall is one request of the lease's client.
type leaseCall struct {
	kind            callKind
	asked, answered time.Duration
	// node is the one that was asked; it may have forwarded the request.
	node int
	key  string // of a put or a get
	// err is empty if the request was answered. It was refused if gone is set: the
	// answer says that the lease, or the key, does not exist.
	err  string
	gone bool
}

type callKind string

const (
	grantCall  callKind = "grant"
	putCall    callKind = "put"
	renewCall  callKind = "renew"
	getCall    callKind = "get"
	revokeCall callKind = "revoke"
)

// leaseDeletion is a delete event, as one node's watch delivered it.
type leaseDeletion struct {
	key      string
	revision int64
	at       time.Duration
	node     int
}

func (c leaseCall) acknowledged() bool { return c.err == "" && !c.gone }

// judgeLease returns what is wrong with a lease that the end of the round should have
// seen the end of, too.
func judgeLease(l *leaseHistory) (wrong []string) {
	wrong = append(wrong, tooEarly(l)...)
	return append(wrong, notWhole(l)...)
}

// tooEarly is the first judge. A grant or renewal that was acknowledged promises that
// the lease lives for its TTL, counted from before the request was sent. No client may see
// before that end that the lease, or a key of it, is gone, unless a client
// has asked to revoke it. A late observation proves nothing, so the judge has no false positives.
func tooEarly(l *leaseHistory) (wrong []string) {
	promised := leaseCall{asked: -1 << 62}
	revoked := time.Duration(1<<63 - 1)
	put := map[string]time.Duration{} // when the put was answered
	for _, c := range l.calls {
		switch {
		case c.kind == revokeCall:
			revoked = min(revoked, c.asked)
		case (c.kind == grantCall || c.kind == renewCall) && c.acknowledged() && c.asked > promised.asked:
			promised = c
		case c.kind == putCall && c.acknowledged():
			put[c.key] = c.answered
		}
	}
	end := min(promised.asked+time.Duration(l.ttl)*time.Second, revoked)
	seen := func(at time.Duration, format string, args ...any) { // the first one says it all
		if at < end {
			end = at
			wrong = []string{fmt.Sprintf("%s: %s, but the %s at %s promised %d s",
				seconds(at), fmt.Sprintf(format, args...), promised.kind, seconds(promised.asked), l.ttl)}
		}
	}
	for _, d := range l.deleted {
		seen(d.at, "node%d's watch shows %s deleted at revision %d", d.node, d.key, d.revision)
	}
	for _, c := range l.calls {
		if at, ok := put[c.key]; c.gone && (c.kind != getCall || ok && at < c.asked) {
			seen(c.answered, "a %s through node%d that was asked at %s finds nothing", c.kind, c.node, seconds(c.asked))
		}
	}
	return wrong
}

// notWhole is the second judge. A lease's end deletes all its keys in one revision.
func notWhole(l *leaseHistory) (wrong []string) {
	gone := map[string]bool{}
	for _, d := range l.deleted {
		gone[d.key] = true
		if d.revision != l.deleted[0].revision && len(wrong) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s was deleted at revision %d, %s at revision %d",
				l.deleted[0].key, l.deleted[0].revision, d.key, d.revision))
		}
	}
	for _, c := range l.calls {
		if c.kind == putCall && c.acknowledged() && !gone[c.key] {
			wrong = append(wrong, fmt.Sprintf("no watch shows that %s was deleted", c.key))
		}
	}
	return wrong
}

// lateness is how long after the end that was promised the lease's keys were seen to
// be gone; 0 if they were not seen to be, or the client has revoked it.
func lateness(l *leaseHistory) time.Duration {
	last := time.Duration(-1 << 62)
	for _, c := range l.calls {
		if c.kind == revokeCall {
			return 0
		}
		if c.kind == grantCall || c.kind == renewCall && !c.gone {
			last = max(last, c.answered) // it may have taken effect without an answer
		}
	}
	if len(l.deleted) == 0 {
		return 0
	}
	first := slices.MinFunc(l.deleted, func(a, b leaseDeletion) int { return cmp.Compare(a.at, b.at) })
	return max(0, first.at-last-time.Duration(l.ttl)*time.Second)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

// String returns the lease's history as text, in order.
func (l *leaseHistory) String() string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, c := range l.calls {
		outcome := "ok"
		switch {
		case c.err != "":
			outcome = c.err
		case c.gone:
			outcome = "gone"
		}
		lines = append(lines, line{c.asked, fmt.Sprintf("to %s  %s %s through node%d: %s", seconds(c.answered), c.kind, c.key, c.node, outcome)})
	}
	for _, d := range l.deleted {
		lines = append(lines, line{d.at, fmt.Sprintf("node%d's watch shows %s deleted at revision %d", d.node, d.key, d.revision)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, "lease %x of %d s\n", l.id, l.ttl)
	for _, l := range lines {
		fmt.Fprintf(&b, "  %s %s\n", seconds(l.at), l.text)
	}
	return b.String()
}

// TestLeaseJudgeFindsViolations: the judge accepts a lease's correct history, and
// rejects it after each single change.
func TestLeaseJudgeFindsViolations(t *testing.T) {
	const s = time.Second
	right := func() *leaseHistory {
		return &leaseHistory{
			id: 7, ttl: 3, keys: []string{"a", "b"},
			calls: []leaseCall{
				{kind: grantCall, asked: 1 * s, answered: 1 * s},
				{kind: putCall, key: "a", asked: 1 * s, answered: 1 * s},
				{kind: putCall, key: "b", asked: 1 * s, answered: 1 * s},
				{kind: renewCall, asked: 3 * s, answered: 5 * s},
				{kind: renewCall, asked: 5 * s, answered: 5 * s, err: "timeout"},
				{kind: getCall, key: "a", asked: 6 * s, answered: 7 * s, gone: true},
				{kind: renewCall, asked: 7 * s, answered: 8 * s, gone: true},
			},
			deleted: []leaseDeletion{{"a", 9, 6 * s, 0}, {"b", 9, 6 * s, 0}, {"a", 9, 7 * s, 1}, {"b", 9, 7 * s, 1}},
		}
	}
	require.Empty(t, judgeLease(right()))
	for name, c := range map[string]struct {
		change func(*leaseHistory)
		want   string
	}{
		"a deletion is early":        {func(l *leaseHistory) { l.deleted[1].at-- }, "node0's watch shows b deleted"},
		"a read finds nothing early": {func(l *leaseHistory) { l.calls[5].answered = 6*s - 1 }, "a get through node0"},
		"a renewal finds nothing early": {func(l *leaseHistory) {
			l.calls[6].asked, l.calls[6].answered = 5*s, 6*s-1
		}, "a renew through node0"},
		"a renewal after the end is acknowledged": {func(l *leaseHistory) { l.calls[6].gone = false }, "deleted at revision 9"},
		"an unanswered renewal was acknowledged":  {func(l *leaseHistory) { l.calls[4].err = "" }, "deleted at revision 9"},
		"a key stays":                             {func(l *leaseHistory) { l.deleted = slices.Delete(l.deleted, 1, 4) }, "no watch shows that b was deleted"},
		"all keys stay":                           {func(l *leaseHistory) { l.deleted = nil }, "no watch shows that a was deleted"},
		"keys end one after the other":            {func(l *leaseHistory) { l.deleted[3].revision++ }, "a was deleted at revision 9, b at revision 10"},
		"it is revoked after the deletion": {func(l *leaseHistory) {
			l.calls = append(l.calls, leaseCall{kind: revokeCall, asked: 4*s - 1, answered: 4 * s})
			l.deleted[0].at = 4*s - 2
		}, "a deleted at revision 9"},
	} {
		t.Run(name, func(t *testing.T) {
			l := right()
			c.change(l)
			wrong := judgeLease(l)
			require.NotEmpty(t, wrong, "%s", l)
			require.Contains(t, wrong[0], c.want)
		})
	}
	revoked := right()
	revoked.calls = append(revoked.calls, leaseCall{kind: revokeCall, asked: 3*s + 1, answered: 4 * s, err: "timeout"})
	for i := range revoked.deleted {
		revoked.deleted[i].at = 3*s + 2
	}
	require.Empty(t, judgeLease(revoked), "a lease may end once its client has asked for that")
}
