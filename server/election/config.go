package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// The defaults of Config's durations.
const (
	DefaultLeaseDuration = 2 * time.Second
	DefaultRenewDeadline = 1500 * time.Millisecond
	DefaultRetryPeriod   = 250 * time.Millisecond
)

// Config describes a member of an election.
type Config struct {
	// Store holds the lock row. All members use the same table.
	Store sqlstore.Store
	// Identity names the member; valid UTF-8, not empty, unique. A process that
	// has not held the lock yet counts as the holder that another process under
	// the same identity was: a member that comes back takes its own lock without
	// waiting for it to expire. The other process, if it lives, stops leading.
	Identity string

	// LeaseDuration is how long a record must go unchanged, by the clock of
	// whoever watches it, before another member takes the lock. The record
	// carries whole seconds, at least one. The default is 2 s.
	LeaseDuration time.Duration
	// RenewDeadline is below LeaseDuration. One read or write of the lock row
	// may take half of it; so may, in all, the release of the lock twice that.
	// The default is 1.5 s.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between renewals; candidates look 1 to 2.2 times
	// as far apart. RenewDeadline is more than 1.2 times RetryPeriod. The
	// default is 250 ms.
	RetryPeriod time.Duration

	// Lead is called, in a goroutine of the Elector's, when the lock was
	// acquired, and not again before it returned.
	//
	// ctx ends when another process is seen to have taken the lock, when Run's
	// context ends, or on Transfer. It does not end merely because renewals fail: while
	// the database is away nobody can commit, and when it is back the chain row
	// decides; a leader whose lock nobody took goes on in the same call.
	// Lead must return soon after ctx ended: the member neither releases the
	// lock nor follows the election before it did.
	//
	// Lead returns nil only if it led: if it fenced whoever led before, and was
	// not itself deposed as far as it knows. Then, and only then, is the next
	// leader told that the lock was handed over. An error otherwise, ctx's if it
	// never came to lead. If Lead returns though ctx has not ended, the lock is
	// released, and the member stands back for a while (at first four times
	// RetryPeriod, doubled by every further short call, up to 64 times) so that
	// others get their chance. An error is logged and counted.
	//
	// handedOver says that nobody else can still be leading: the record that
	// was replaced was written by its holder after its Lead had returned nil,
	// or there was no record at all. It is false when the lock was taken after
	// expiry, on a report of death, or when the record named this identity
	// already (a restart).
	Lead func(ctx context.Context, handedOver bool) error
	// Observed, if set, is called when the holder changed; "" is nobody. Calls
	// come in order from one goroutine, every change once, and may lag behind
	// Holder. Run does not return before the last call has.
	Observed func(holder string)

	// Logger is slog.Default() if nil. What client-go logs goes there at debug
	// level.
	Logger *slog.Logger
	// Registerer, if set, gets the metrics until Run returns.
	Registerer prometheus.Registerer
}

// withDefaults returns c completed, or says what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.LeaseDuration, DefaultLeaseDuration)
	setDefault(&c.RenewDeadline, DefaultRenewDeadline)
	setDefault(&c.RetryPeriod, DefaultRetryPeriod)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("election: "+format, args...))
		}
	}
	check(c.Store != nil, "no store")
	check(c.Lead != nil, "no Lead function")
	check(c.Identity != "", "the identity is empty")
	check(utf8.ValidString(c.Identity), "the identity %q is not valid UTF-8", c.Identity)
	check(c.LeaseDuration >= time.Second && c.LeaseDuration%time.Second == 0,
		"a lease duration of %v: it must be whole seconds, at least one", c.LeaseDuration)
	check(c.RenewDeadline > 0 && c.RenewDeadline < c.LeaseDuration,
		"a renew deadline of %v: it must be above 0 and below the lease duration, %v", c.RenewDeadline, c.LeaseDuration)
	check(c.RetryPeriod > 0 && time.Duration(leaderelection.JitterFactor*float64(c.RetryPeriod)) < c.RenewDeadline,
		"a retry period of %v: it must be above 0, and %v times it below the renew deadline, %v",
		c.RetryPeriod, leaderelection.JitterFactor, c.RenewDeadline)
	return c, errors.Join(errs...)
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// operationTimeout bounds one read or write of the row, so that one that hangs
// leaves time for a second one, on another connection, within the deadline.
func (c *Config) operationTimeout() time.Duration { return c.RenewDeadline / 2 }
