package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// The errors that say that a job is not finished, one for each kind, and that it was overtaken.
var (
	// ErrRestoring says that a restore is filling the table, or was interrupted.
	ErrRestoring = errors.New("the database is being restored, or a restore was interrupted: run sqlbrain restore " +
		"again, to its end")
	// ErrImporting says that an import of kine's keys is filling the table, or was interrupted.
	ErrImporting = errors.New("the keys of kine are being imported into the database, or that was interrupted: " +
		"start sqlbrain kine again, or give kine its table back with sqlbrain kine --revert")
	// ErrReverting says that kine's table has all keys, and that this one is empty, or is being emptied.
	ErrReverting = errors.New("the database was given back to kine, or that was interrupted: start sqlbrain kine to " +
		"import the keys again, or use an empty database, or restore --replace; run sqlbrain kine --revert again if it " +
		"did not end")
	// ErrOvertaken says that another job has the table.
	ErrOvertaken = errors.New("another restore, import or return to kine took the database over: this one stopped " +
		"before its end, and its data does not count")
)

var errUnfinished = map[coder.JobKind]error{coder.JobRestore: ErrRestoring, coder.JobImport: ErrImporting,
	coder.JobRevert: ErrReverting}

// jobAttempts is how often a commit is tried while the database does not answer.
const jobAttempts = 8

// RefuseUnfinished returns ErrRestoring, ErrImporting or ErrReverting if the table is incomplete.
// Every process that opens the table calls it before it writes.
func RefuseUnfinished(ctx context.Context, store sqlstore.Store) error {
	row, _, err := readJob(ctx, store)
	if err != nil || row == nil || row.Ended {
		return err
	}
	return errUnfinished[row.Kind]
}

// readJob returns the job row and its bytes, nil if there is none.
func readJob(ctx context.Context, store sqlstore.Store) (row *coder.Job, raw []byte, err error) {
	raw, err = store.Get(ctx, coder.JobKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the job row: %w", err)
	}
	j, err := coder.DecodeJob(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the job row: %w", err)
	}
	return &j, raw, nil
}

// job is the hold of a process on a table that is incomplete. Every commit of the process compares
// what the job row says, by a row of which the value changes with each commit. Not safe for concurrent use.
type job struct {
	store   sqlstore.Store
	row     coder.Job
	commits int64
}

// beginJob takes the table for a job. It takes over from an unfinished job of the kinds of over, which then fails at
// its next commit. If there is no unfinished job, first checks the table, and adds to the commit. Errors: that of
// RefuseUnfinished for a job of another kind, those of first, the database's.
func beginJob(ctx context.Context, store sqlstore.Store, kind coder.JobKind, over []coder.JobKind,
	first func(sqlstore.BatchWrite) error) (*job, error) {
	j := &job{store: store, row: coder.NewJob(kind)}
	err := repeat(ctx, func() error {
		found, raw, err := readJob(ctx, store)
		if err != nil {
			return err
		}
		batch := store.BeginBatchWrite()
		switch {
		case found == nil || found.Ended:
			if err := first(batch); err != nil {
				return err
			}
		case *found == j.row:
			return nil // an earlier attempt took effect
		case !slices.Contains(over, found.Kind):
			return errUnfinished[found.Kind]
		}
		if found == nil {
			batch.PutIfNotExist(coder.JobKey(), coder.EncodeJob(j.row))
		} else {
			batch.CAS(coder.JobKey(), coder.EncodeJob(j.row), raw)
		}
		batch.Put(coder.JobStepKey(), coder.EncodeJobStep(j.row, 0))
		return batch.Commit(ctx)
	})
	return j, err
}

// commit makes a commit of the job. It repeats one that fails in passing. Errors: ErrOvertaken, the database's.
func (j *job) commit(ctx context.Context, fill func(sqlstore.BatchWrite)) error {
	held, next := coder.EncodeJobStep(j.row, j.commits), coder.EncodeJobStep(j.row, j.commits+1)
	err := j.swap(ctx, coder.JobStepKey(), next, held, func(batch sqlstore.BatchWrite) error {
		fill(batch)
		return nil
	})
	if err == nil {
		j.commits++
	}
	return err
}

// end makes the last commit of the job, which completes the table. Errors as commit, and those of fill.
func (j *job) end(ctx context.Context, fill func(sqlstore.BatchWrite) error) error {
	ended := j.row
	ended.Ended = true
	return j.swap(ctx, coder.JobKey(), coder.EncodeJob(ended), coder.EncodeJob(j.row),
		func(batch sqlstore.BatchWrite) error {
			batch.Del(coder.JobStepKey())
			return fill(batch)
		})
}

// swap commits what fill adds, with the row of key, which only the owner of the job changes from held to next.
func (j *job) swap(ctx context.Context, key, next, held []byte, fill func(sqlstore.BatchWrite) error) error {
	return repeat(ctx, func() error {
		batch := j.store.BeginBatchWrite()
		batch.CAS(key, next, held)
		if err := fill(batch); err != nil {
			return err
		}
		err := batch.Commit(ctx)
		if !sqlstore.IsConflict(err) {
			return err
		}
		now, rerr := j.store.Get(ctx, key)
		switch {
		case rerr != nil && !errors.Is(rerr, sqlstore.ErrKeyNotFound):
			return rerr
		case bytes.Equal(now, next):
			return nil // an earlier attempt took effect
		case bytes.Equal(now, held):
			return err // the conflict is with another row
		}
		return ErrOvertaken
	})
}

// repeat calls attempt until it succeeds, or fails for another reason than a conflict or a database that does not
// answer.
func repeat(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		passing := errors.Is(err, sqlstore.ErrUncertain) || errors.Is(err, sqlstore.ErrUnavailable) ||
			sqlstore.IsConflict(err)
		if !passing || n == jobAttempts || retry.Database.Wait(ctx, n) != nil {
			return err
		}
	}
}
