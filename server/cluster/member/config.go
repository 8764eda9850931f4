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
	// ElectionTimeout is how long the process that holds the lock may leave a challenge unanswered, if its address does
	// not refuse connections. The default is timing.Answer; the caller keeps it between that and timing.LongestAnswer.
	ElectionTimeout time.Duration
	// Force lets this process join although another one runs as the same member.
	// The other one stops serving.
	Force bool
	// Temporary removes the member when its process leaves: the name will not be used again.
	Temporary bool
	// Certificate is the one that this process shows to the other members; nil: none.
	Certificate Certificate
	Logger      *slog.Logger          // discards
	Registerer  prometheus.Registerer // nil: metrics are kept, not registered

	// Tests change these.
	poll     time.Duration // timing.Poll
	fastPoll time.Duration // timing.FastPoll
	protocol int           // Protocol
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
	c.poll = cmp.Or(c.poll, timing.Poll)
	c.fastPoll = cmp.Or(c.fastPoll, timing.FastPoll)
	c.protocol = cmp.Or(c.protocol, Protocol)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, timing.Answer)
	if c.Certificate == nil {
		c.Certificate = noCertificate{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// holderPoll is the time between polls of the holder of the lock.
func (c Config) holderPoll() time.Duration { return c.poll - c.poll/timing.Lead }
