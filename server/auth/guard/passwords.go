package guard

import (
	"context"
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"golang.org/x/crypto/bcrypt"
)

// maxStoredCost is the highest bcrypt cost of a stored password that is checked, unless the
// configured cost is higher. At cost 14 a check takes about a second of one core, and each
// step doubles that: at cost 31 it takes days.
const maxStoredCost = 14

// MaxStoredCost returns the highest bcrypt cost of stored passwords that is accepted with a
// configured cost for new ones.
func MaxStoredCost(configured int) int { return max(maxStoredCost, configured) }

// ErrPasswordTooCostly is the error of a password hash whose bcrypt cost is above the limit.
var ErrPasswordTooCostly = errors.New("the bcrypt cost of the user's password is too high: checking it would hold a processor for seconds to days (--bcrypt-cost raises the limit of 14)")

// CheckStoredPassword returns ErrPasswordTooCostly if checking a password against hash takes
// more than limit allows. It accepts bytes that are not a bcrypt hash: they match no password.
func CheckStoredPassword(hash []byte, limit int) error {
	if cost, err := bcrypt.Cost(hash); err == nil && cost > limit {
		return ErrPasswordTooCostly
	}
	return nil
}

// waitingPerSlot is how many calls may wait for each hash that runs at a time. At bcrypt's
// default cost a full queue takes a few seconds.
const waitingPerSlot = 128

// newHashing allows one hash at a time for every two processors, and at least one, so that a
// flood of logins leaves processors to everything else.
func newHashing() *gate {
	slots := max(1, runtime.GOMAXPROCS(0)/2)
	return newGate(slots, slots*waitingPerSlot)
}

// newLogins returns the metric that counts password checks by outcome.
func newLogins() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sqlbrain_auth_password_checks_total",
		Help: "Password checks of Authenticate: passed, failed, or refused because too many calls waited.",
	}, []string{"result"})
}

// checkPassword returns nil if password is the user's. source is where the call comes from: a
// source whose logins failed repeatedly waits first. Errors: etcd's of a password check,
// mvcc.ErrTooManyRequests, those of linearizable reads.
func (g *Guard) checkPassword(ctx context.Context, source, name, password string) (*view, error) {
	for {
		delayed, err := g.failures.wait(ctx, source)
		if err != nil {
			return nil, err
		}
		rows, err := g.node.SyncAuth(ctx)
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
		late := false // other logins of the source have failed since
		var verdict error
		if err := g.hashing.run(ctx, func() {
			if late = !delayed && g.failures.limited(source); late {
				return
			}
			if verdict = g.compare(v, name, password); verdict != nil {
				g.failures.add(source)
			}
		}); err != nil {
			return nil, err
		}
		if !late {
			return v, verdict
		}
	}
}

// compare checks a password. It takes as long as bcrypt does.
func (g *Guard) compare(v *view, name, password string) error {
	if u := v.user(name); u != nil {
		if err := CheckStoredPassword(u.Password, MaxStoredCost(g.cfg.BcryptCost)); err != nil {
			g.log.Error("login refused without looking at the password; give the user a new password, or raise --bcrypt-cost", "user", name, "error", err)
			return etcdauth.ErrAuthFailed
		}
	}
	_, err := v.CheckPassword(name, password)
	return err
}
