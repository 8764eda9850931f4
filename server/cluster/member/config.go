package member

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Config configures Join. Store and Name are required.
type Config struct {
	Store sqlstore.Store
	// Name is the member's name in the whole cluster: any UTF-8 text of at most 3068 bytes.
	Name string
	// PeerURLs are where the other members reach this one; none if they do not.
	PeerURLs []string
	// ClientURLs are where clients reach it. They are not checked.
	ClientURLs []string
	// Version is the product's version, which the other members see.
	Version string
	// LeaseDuration is how long the process that holds the lock must be silent before
	// another one takes the lock. The default is timing.Lease.
	LeaseDuration time.Duration
	// RenewDeadline is less than LeaseDuration. One heartbeat of the process that holds the
	// lock may take half of it, and the release of the lock all of it. If the database is far
	// away, one heartbeat may take all of it, but no more than half of LeaseDuration. The
	// default is timing.RenewDeadline.
	RenewDeadline time.Duration
	// RetryPeriod is the time between heartbeats of the process that holds the lock, unless the
	// others hear it without. Other processes look at it at least as often. RenewDeadline is more
	// than 1.2 times as long. The default is timing.RetryPeriod.
	RetryPeriod time.Duration
	// Force lets this process join although another one runs as the same member.
	// The other one stops serving.
	Force bool
	// Temporary removes the member when its process leaves: the name will not be used again.
	Temporary bool
	// HearsLeader says that this process calls Heard while the process that holds the lock gives
	// signs of life by another way than the table.
	HearsLeader bool
	// Certificate is the one that this process shows to the other members; nil: none.
	Certificate Certificate
	Logger      *slog.Logger          // discards
	Registerer  prometheus.Registerer // nil: metrics are kept, not registered

	// Tests change these.
	heartbeatInterval time.Duration // timing.MemberHeartbeat
	answerInterval    time.Duration // timing.Answer
	protocol          int           // Protocol
}

// Certificate is a certificate that can change while the process runs. Its methods
// may be called by several goroutines.
type Certificate interface {
	// Fingerprint returns the fingerprint to publish in the member's row.
	Fingerprint() string
	// Published is called each time the table is seen to have this fingerprint.
	Published(fingerprint string)
}

// noCertificate is the Certificate of a process without one.
type noCertificate struct{}

func (noCertificate) Fingerprint() string { return "" }
func (noCertificate) Published(string)    {}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, errors.New("member: no store")
	}
	if c.Name == "" || !utf8.ValidString(c.Name) {
		return c, fmt.Errorf("member: the member name %q is not a text", c.Name)
	}
	if n := len(coder.EncodeMemberKey(c.Name)); n > coder.MaxInternalKey {
		return c, fmt.Errorf("member: the member name is %d bytes too long", n-coder.MaxInternalKey)
	}
	if len(c.PeerURLs) > 0 {
		var err error
		if c.PeerURLs, err = normalURLs(c.PeerURLs); err != nil {
			return c, err
		}
		if err := checkReachable(c.PeerURLs); err != nil {
			return c, err
		}
	}
	c.ClientURLs = slices.Clone(c.ClientURLs)
	c.heartbeatInterval = cmp.Or(c.heartbeatInterval, timing.MemberHeartbeat)
	c.answerInterval = cmp.Or(c.answerInterval, timing.Answer)
	c.protocol = cmp.Or(c.protocol, Protocol)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, timing.Lease)
	c.RenewDeadline = cmp.Or(c.RenewDeadline, timing.RenewDeadline)
	c.RetryPeriod = cmp.Or(c.RetryPeriod, timing.RetryPeriod)
	if err := c.checkLease(); err != nil {
		return c, err
	}
	if c.Certificate == nil {
		c.Certificate = noCertificate{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func (c Config) checkLease() error {
	switch {
	case c.RenewDeadline <= 0 || c.RenewDeadline >= c.LeaseDuration:
		return fmt.Errorf("member: a renew deadline of %v: it must be above 0 and below the lease duration, %v",
			c.RenewDeadline, c.LeaseDuration)
	case c.RetryPeriod < time.Millisecond || !timing.RetryFits(c.RetryPeriod, c.RenewDeadline):
		return fmt.Errorf("member: a retry period of %v: it must be at least 1ms, and %v times it below the renew deadline, %v",
			c.RetryPeriod, timing.RetryMargin/100.0, c.RenewDeadline)
	}
	return nil
}

// glanceInterval is the time between glances: several in each retry period, so that the
// lock's holder is not late.
func (c Config) glanceInterval() time.Duration { return min(c.answerInterval, c.RetryPeriod/2) }

// calmInterval is the time between glances of a calm process: one that has to answer a
// challenge before the lock expires.
func (c Config) calmInterval() time.Duration {
	return max(c.glanceInterval(), min(timing.CalmAnswer, c.LeaseDuration/timing.ChallengeShare))
}

// longestStep is how much time a read of the table adds to the view's clock at most, if reads
// have that interval.
func (c Config) longestStep(interval time.Duration) time.Duration {
	return min(3*interval, c.LeaseDuration/2)
}

// leaderTimeout bounds one call of a process that leads, so that one that hangs leaves
// time for another one, on another connection, within the renew deadline.
func (c Config) leaderTimeout() time.Duration { return min(c.RenewDeadline/2, timing.HeartbeatTimeout) }

// farTimeout is the longest that leaderTimeout and the bound of a glance become if the database is far away. A call
// that hangs leaves time for another one within the lease, and the release of the lock ends by the renew deadline.
func (c Config) farTimeout() time.Duration {
	return min(c.LeaseDuration/2, c.RenewDeadline, timing.HeartbeatTimeout)
}
