package migrations

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// attempts bounds how often a statement is tried that loses against others; with the pauses
// between them, that is 3 s at most.
const attempts = 10

var pauses = retry.Backoff{Min: 10 * time.Millisecond, Max: 500 * time.Millisecond}

// repeat calls f until its error is none that undone reports, at most attempts times.
func repeat(ctx context.Context, undone func(error) bool, f func() error) error {
	for failures := 1; ; failures++ {
		err := f()
		if err == nil || failures == attempts || !undone(translate(err)) || pauses.Wait(ctx, failures) != nil {
			return err
		}
	}
}

// repeating is a driver that repeats what the engine undid, because a member that
// migrates meets others that start at the same moment.
type repeating struct {
	database.Driver
	ctx    context.Context // of the one call the driver is made for
	undone func(error) bool
}

func (d repeating) Lock() error { return repeat(d.ctx, d.undone, d.Driver.Lock) }

func (d repeating) Run(migration io.Reader) error {
	script, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	return repeat(d.ctx, d.undone, func() error { return d.Driver.Run(bytes.NewReader(script)) })
}

func (d repeating) SetVersion(version int, dirty bool) error {
	return repeat(d.ctx, d.undone, func() error { return d.Driver.SetVersion(version, dirty) })
}

func (d repeating) Version() (version int, dirty bool, err error) {
	err = repeat(d.ctx, d.undone, func() (err error) {
		version, dirty, err = d.Driver.Version()
		return err
	})
	return version, dirty, err
}
