package membership

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
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// The defaults of Config's durations.
const (
	DefaultHeartbeatInterval = 2 * time.Second
	DefaultAnswerInterval    = 100 * time.Millisecond
)

// Config configures Join. Store and Name are needed.
type Config struct {
	Store sqlstore.Store
	// Name names the member in the whole cluster: any UTF-8 text of at most
	// 3068 bytes.
	Name string
	// PeerURLs are where the other members reach this one; none if they do not.
	PeerURLs []string
	// ClientURLs are where clients do. They are not checked.
	ClientURLs []string
	// Version is the product's, for the others to know.
	Version string
	// HeartbeatInterval is the time between heartbeats, at least 1 ms; 2 s.
	HeartbeatInterval time.Duration
	// AnswerInterval is the time between looks for a challenge in this member's
	// row, at least 1 ms; 100 ms.
	AnswerInterval time.Duration
	// Force lets this process join although another one runs as the same member.
	// The other one stops serving.
	Force bool
	// Certificate is the one that this process shows to the other members; nil: none.
	Certificate Certificate
	Logger      *slog.Logger          // discards
	Registerer  prometheus.Registerer // nil: metrics are kept, not registered
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
		return c, errors.New("membership: no store")
	}
	if c.Name == "" || !utf8.ValidString(c.Name) {
		return c, fmt.Errorf("membership: the member name %q is not a text", c.Name)
	}
	if n := len(coder.EncodeMemberKey(c.Name)); n > coder.MaxInternalKey {
		return c, fmt.Errorf("membership: the member name is %d bytes too long", n-coder.MaxInternalKey)
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
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.AnswerInterval = cmp.Or(c.AnswerInterval, DefaultAnswerInterval)
	if c.HeartbeatInterval < time.Millisecond || c.AnswerInterval < time.Millisecond {
		return c, fmt.Errorf("membership: heartbeat interval %s or answer interval %s is below a millisecond", c.HeartbeatInterval, c.AnswerInterval)
	}
	if c.Certificate == nil {
		c.Certificate = noCertificate{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
