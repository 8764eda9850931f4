package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// maxStoredCost is the highest bcrypt cost of a stored password that is checked, unless the
// configured cost is higher. At cost 14 a check takes about a second of one core, and each
// step doubles that: at cost 31 it takes days.
const maxStoredCost = 14

// MaxStoredCost returns the highest bcrypt cost of stored passwords that is accepted with a
// configured cost for new ones.
func MaxStoredCost(configured int) int { return max(maxStoredCost, configured) }

// ErrPasswordTooCostly is the error of a password hash whose bcrypt cost is above the limit.
var ErrPasswordTooCostly = errors.New("the bcrypt cost of the user's password is too high: checking it would hold a " +
	"processor for seconds to days (--bcrypt-cost raises the limit of 14)")

// CheckStoredPassword returns ErrPasswordTooCostly if checking a password against hash takes
// more than limit allows. It accepts bytes that are not a bcrypt hash: they match no password.
func CheckStoredPassword(hash []byte, limit int) error {
	if cost, err := bcrypt.Cost(hash); err == nil && cost > limit {
		return ErrPasswordTooCostly
	}
	return nil
}

const (
	// waitingPerSlot is how many calls may wait for each hash that runs at a time, of logins that
	// succeeded before and of others. At bcrypt's default cost a full queue takes a few seconds.
	waitingPerSlot = 128
	// holdFailure is how long the answer to a wrong login is held back if the same login failed
	// repeatedly, and maxHeld how many such answers are. More are answered at once.
	holdFailure = 3 * time.Second
	maxHeld     = 1024
)

// newHashing allows one hash at a time for every two processors, and at least one, so that a
// flood of logins leaves processors to everything else.
func newHashing() *turns {
	slots := max(1, runtime.GOMAXPROCS(0)/2)
	return newTurns(slots, slots*waitingPerSlot)
}

// newLogins returns the metric that counts password checks by outcome.
func newLogins() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sqlbrain_auth_password_checks_total",
		Help: "Password checks of Authenticate: passed, failed, or refused because too many calls waited.",
	}, []string{"result"})
}

// checkPassword returns nil if password is the user's. source is where the call comes from.
// Errors: etcd's of a password check, mvcc.ErrTooManyRequests, those of linearizable reads.
func (g *Guard) checkPassword(ctx context.Context, source, name, password string) (*view, error) {
	rows, err := g.users.Sync(ctx)
	if err != nil {
		return nil, err
	}
	v := g.view(rows)
	switch {
	case v.err != nil:
		return nil, v.err
	case !v.IsAuthEnabled():
		return nil, etcdauth.ErrAuthNotEnabled
	}
	l := loginOf(source, name, v.user(name) != nil)
	var failure error
	if err := g.hashing.run(ctx, l, Remote(ctx), func() bool {
		failure = g.compare(v, name, password)
		return failure == nil
	}); err != nil {
		return nil, err
	}
	if failure != nil && g.hashing.failures(l).limited(l) {
		g.hold(ctx)
	}
	return v, failure
}

// hold holds an answer back. It makes who repeats wrong logins slow, and leaves turns to right ones.
func (g *Guard) hold(ctx context.Context) {
	if g.held.Add(1) <= maxHeld {
		_ = retry.Sleep(ctx, holdFailure) // the answer stays what it is
	}
	g.held.Add(-1)
}

// compare checks a password as etcd does, except that it takes as long for a name that no user has.
func (g *Guard) compare(v *view, name, password string) error {
	hash, failure := v.noPassword, etcdauth.ErrAuthFailed
	if u := v.user(name); u.GetOptions().GetNoPassword() {
		failure = etcdauth.ErrNoPasswordUser
	} else if u != nil {
		if err := CheckStoredPassword(u.Password, MaxStoredCost(g.cfg.BcryptCost)); err != nil {
			g.log.Error("login refused without looking at the password; give the user a new password, or raise --bcrypt-cost",
				"user", name, "error", err)
		} else {
			hash, failure = u.Password, nil
		}
	}
	if g.comparePassword(hash, []byte(password)) != nil && failure == nil {
		return etcdauth.ErrAuthFailed
	}
	return failure
}

// commonCost returns the bcrypt cost that most stored passwords have which can be checked: configured if there are
// none.
func (s *store) commonCost(configured int) int {
	count := make(map[int]int)
	most := configured
	for _, u := range s.users {
		cost, err := bcrypt.Cost(u.Password)
		if err != nil || cost > MaxStoredCost(configured) {
			continue
		}
		if count[cost]++; count[cost] > count[most] || count[cost] == count[most] && cost < most {
			most = cost
		}
	}
	return most
}

// hashOfNoPassword returns a text in the form of a bcrypt hash. No password is known that has it.
func hashOfNoPassword(cost int) []byte {
	return fmt.Appendf(nil, "$2a$%02d$%s", cost, "abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234")
}
