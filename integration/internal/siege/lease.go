package siege

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Lease is what one lease's client did and saw, and what watches saw of the
// lease's keys. Times count from the start of the round.
type Lease struct {
	ID, TTL int64
	Keys    []string
	Calls   []LeaseCall
	Deleted []LeaseDeletion
}

// LeaseCall is one request of the lease's client.
type LeaseCall struct {
	Kind            CallKind
	Asked, Answered time.Duration
	// Node is the one that was asked; it may have forwarded the request.
	Node int
	Key  string // of a put or a get
	// Err is empty if the request was answered. It was refused if Gone is set: the
	// answer says that the lease, or the key, does not exist.
	Err  string
	Gone bool
}

// CallKind is what a request asks for.
type CallKind string

// The kinds of requests.
const (
	GrantCall  CallKind = "grant"
	PutCall    CallKind = "put"
	RenewCall  CallKind = "renew"
	GetCall    CallKind = "get"
	RevokeCall CallKind = "revoke"
)

// LeaseDeletion is a delete event, as one node's watch delivered it.
type LeaseDeletion struct {
	Key      string
	Revision int64
	At       time.Duration
	Node     int
}

// Acknowledged reports whether the request succeeded.
func (c LeaseCall) Acknowledged() bool { return c.Err == "" && !c.Gone }

// Judge returns what is wrong with a lease that the end of the round should have
// seen the end of, too.
func (l *Lease) Judge() (wrong []string) { return append(l.TooEarly(), l.notWhole()...) }

// TooEarly is the first judge. A grant or renewal that was acknowledged promises that
// the lease lives for its TTL, counted from before the request was sent. No client may see
// before that end that the lease, or a key of it, is gone, unless a client
// has asked to revoke it. A late observation proves nothing, so the judge has no false positives.
func (l *Lease) TooEarly() (wrong []string) {
	promised := LeaseCall{Asked: -1 << 62}
	revoked := time.Duration(1<<63 - 1)
	put := map[string]time.Duration{} // when the put was answered
	for _, c := range l.Calls {
		switch {
		case c.Kind == RevokeCall:
			revoked = min(revoked, c.Asked)
		case (c.Kind == GrantCall || c.Kind == RenewCall) && c.Acknowledged() && c.Asked > promised.Asked:
			promised = c
		case c.Kind == PutCall && c.Acknowledged():
			put[c.Key] = c.Answered
		}
	}
	end := min(promised.Asked+time.Duration(l.TTL)*time.Second, revoked)
	seen := func(at time.Duration, format string, args ...any) { // the first one says it all
		if at < end {
			end = at
			wrong = []string{fmt.Sprintf("%s: %s, but the %s at %s promised %d s",
				seconds(at), fmt.Sprintf(format, args...), promised.Kind, seconds(promised.Asked), l.TTL)}
		}
	}
	for _, d := range l.Deleted {
		seen(d.At, "node%d's watch shows %s deleted at revision %d", d.Node, d.Key, d.Revision)
	}
	for _, c := range l.Calls {
		if at, ok := put[c.Key]; c.Gone && (c.Kind != GetCall || ok && at < c.Asked) {
			seen(c.Answered, "a %s through node%d that was asked at %s finds nothing", c.Kind, c.Node, seconds(c.Asked))
		}
	}
	return wrong
}

// notWhole is the second judge. A lease's end deletes all its keys in one revision.
func (l *Lease) notWhole() (wrong []string) {
	gone := map[string]bool{}
	for _, d := range l.Deleted {
		gone[d.Key] = true
		if d.Revision != l.Deleted[0].Revision && len(wrong) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s was deleted at revision %d, %s at revision %d",
				l.Deleted[0].Key, l.Deleted[0].Revision, d.Key, d.Revision))
		}
	}
	for _, c := range l.Calls {
		if c.Kind == PutCall && c.Acknowledged() && !gone[c.Key] {
			wrong = append(wrong, fmt.Sprintf("no watch shows that %s was deleted", c.Key))
		}
	}
	return wrong
}

// Lateness is how long after the end that was promised the lease's keys were seen to
// be gone; 0 if they were not seen to be, or the client has revoked it.
func (l *Lease) Lateness() time.Duration {
	last := time.Duration(-1 << 62)
	for _, c := range l.Calls {
		if c.Kind == RevokeCall {
			return 0
		}
		if c.Kind == GrantCall || c.Kind == RenewCall && !c.Gone {
			last = max(last, c.Answered) // it may have taken effect without an answer
		}
	}
	if len(l.Deleted) == 0 {
		return 0
	}
	first := slices.MinFunc(l.Deleted, func(a, b LeaseDeletion) int { return cmp.Compare(a.At, b.At) })
	return max(0, first.At-last-time.Duration(l.TTL)*time.Second)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

// String returns the lease's history as text, in order.
func (l *Lease) String() string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, c := range l.Calls {
		outcome := "ok"
		switch {
		case c.Err != "":
			outcome = c.Err
		case c.Gone:
			outcome = "gone"
		}
		lines = append(lines, line{c.Asked, fmt.Sprintf("to %s  %s %s through node%d: %s", seconds(c.Answered), c.Kind,
			c.Key, c.Node, outcome)})
	}
	for _, d := range l.Deleted {
		lines = append(lines, line{d.At, fmt.Sprintf("node%d's watch shows %s deleted at revision %d", d.Node, d.Key,
			d.Revision)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, "lease %x of %d s\n", l.ID, l.TTL)
	for _, l := range lines {
		fmt.Fprintf(&b, "  %s %s\n", seconds(l.at), l.text)
	}
	return b.String()
}
