package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// job is what a shipper does in the background.
type job struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

func startJob(ctx context.Context, work func(context.Context) error) *job {
	ctx, cancel := context.WithCancel(ctx)
	j := &job{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(j.done)
		defer cancel()
		j.err = work(ctx)
	}()
	return j
}

// ended reports whether the job has ended; nil has not.
func (j *job) ended() bool {
	if j == nil {
		return false
	}
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// stop ends the job and waits for it.
func (j *job) stop() {
	if j != nil {
		j.cancel()
		<-j.done
	}
}

// nextBase is a base that is made while segments are written. One of them ends at its revision, so that there is no
// gap.
type nextBase struct {
	base
	job   *job
	size  int64  // of its file, once the job has ended
	hash  string // the same
	began time.Time
	after int64 // bytes of the segments after it
}

// wrote takes in that a segment was published.
func (b *nextBase) wrote(s segment, bytes int64) {
	switch {
	case s.Last == b.Revision:
		b.Before = s
	case s.First > b.Revision:
		b.after += bytes
	}
}

// maintain makes a new base if one is due, and removes what no moment needs that is kept.
func (s *shipper) maintain(ctx context.Context) error {
	b := s.next
	switch {
	case b == nil && s.due():
		return s.beginBase(ctx)
	case b != nil && b.job.ended() && b.job.err != nil:
		s.Metrics.failed(b.job.err)
		s.baseFailed(b.job.err)
	case b != nil && b.job.ended() && b.Before.Last == b.Revision:
		// The history may have been replaced while it was read.
		if err := s.compare(ctx); err != nil {
			return err
		}
		next := s.manifest
		b.Bytes, b.Hash = b.size, b.hash
		next.Bases, next.LogBytes = append(slices.Clone(next.Bases), b.base), b.after
		if err := s.publish(ctx, next, s.gap); err != nil {
			return err
		}
		s.next, s.dirty = nil, true
	}
	if kept := s.kept(); len(kept) < len(s.manifest.Bases) {
		next := s.manifest
		next.Bases = kept
		if err := s.publish(ctx, next, s.gap); err != nil {
			return err
		}
		s.dirty = true
	}
	if s.removal.ended() {
		if err := s.removal.err; err != nil {
			s.Metrics.failed(err)
			s.Log.Warn("cannot remove files that are no longer needed", "error", err)
		}
		s.removal = nil
	}
	if s.dirty && s.removal == nil {
		bases := slices.Clone(s.manifest.Bases)
		s.dirty, s.removal = false, startJob(ctx, func(ctx context.Context) error { return s.to.removeOld(ctx, bases) })
	}
	return nil
}

// due reports whether a new base should be made.
func (s *shipper) due() bool {
	newest := s.manifest.Bases[len(s.manifest.Bases)-1]
	if s.manifest.Newest.Last <= newest.Revision || time.Now().Before(s.notBefore) {
		return false
	}
	every := s.BaseInterval
	if s.Keep > 0 {
		every = min(every, s.Keep) // else much more than that is kept
	}
	age := s.age() - newest.Age
	large := s.manifest.LogBytes >= max(newest.Bytes, s.BaseBytes) && age >= leastAge // the manifest names all bases
	return large || age >= every
}

// kept returns the bases that moments need that are kept: the newest one up to the oldest moment, and those after it;
// KeepBases at least, if there are as many.
func (s *shipper) kept() []base {
	bases := s.manifest.Bases
	if s.Keep > 0 {
		for i := len(bases) - max(1, s.KeepBases); i > 0; i-- {
			if s.age()-bases[i].Age >= s.Keep {
				return bases[i:]
			}
		}
	}
	return bases
}

// needed reports whether a moment after the first of the bases needs a segment.
func needed(s segment, bases []base) bool { return s.First > bases[0].Revision }

// removeOld removes the bases that are not among those of the manifest, and the segments before all of them. A base
// after all of them may be in the making.
func (a archive) removeOld(ctx context.Context, bases []base) error {
	names, err := a.files(ctx)
	if err != nil || len(bases) == 0 {
		return err
	}
	var old []string
	for _, name := range names {
		s, isSegment := segmentNamed(name)
		b, isBase := baseNamed(name)
		if isSegment && !needed(s, bases) || isBase && b.Revision < bases[len(bases)-1].Revision &&
			!slices.ContainsFunc(bases, func(x base) bool { return x.name() == name }) {
			old = append(old, name)
		}
	}
	return a.Remove(ctx, old...)
}

// beginBase begins to make a base of the newest revision.
func (s *shipper) beginBase(ctx context.Context) error {
	b := &nextBase{began: time.Now()}
	made, err := export.OpenTable(ctx, s.Store)
	if err != nil {
		return err
	}
	if b.base, err = s.baseOf(ctx, made.Revision, s.stateAt()); err != nil || b.At.IsZero() {
		return err // without its time, later moments could be taken for earlier ones
	}
	b.Until = b.At
	b.wrote(s.manifest.Newest, 0)
	s.next = b
	name := b.name()
	b.job = startJob(ctx, func(ctx context.Context) error {
		file, err := snapshot.NewMaker(s.tempDir()).Make(ctx, func() (*export.Snapshot, error) { return made, nil }, s.About)
		if err != nil {
			return err
		}
		b.size = file.Size
		b.hash, err = s.sendBase(ctx, name, file)
		return errors.Join(err, file.Close())
	})
	return nil
}

// baseFailed ends the making of a base, and lets the next one wait: it reads the whole table.
func (s *shipper) baseFailed(err error) {
	s.notBefore = time.Now().Add(max(time.Minute, time.Since(s.next.began)))
	s.Log.Warn("cannot make a new base, trying again", "error", err, "after", s.notBefore)
	s.abandonBase()
}

// abandonBase ends the making of a base.
func (s *shipper) abandonBase() {
	if s.next != nil {
		s.next.job.stop()
		s.next = nil
	}
}

// baseOf returns a base of a revision, with what the log says about it.
func (s *shipper) baseOf(ctx context.Context, revision int64, stateAt time.Time) (b base, err error) {
	commit, err := history.New(s.Store, s.mark.Read).CommitOf(ctx, revision)
	return base{Revision: revision, Nonce: rand.Uint64(), At: commit.At, StateAt: later(stateAt, commit.At),
		Age: s.age()}, err
}

// writeBase writes the store at its newest revision, from which the log continues.
func (s *shipper) writeBase(ctx context.Context) (err error) {
	if err := retry.Sleep(ctx, time.Until(s.again)); err != nil {
		return err
	}
	began, complete := time.Now(), s.Now().Add(-commitTime)
	defer func() {
		if s.took = time.Since(began); err != nil {
			s.again = time.Now().Add(s.took) // it reads the whole table
		}
	}()
	var made *export.Snapshot
	var stateAt time.Time
	next := s.manifest
	file, err := snapshot.NewMaker(s.tempDir()).Make(ctx, func() (_ *export.Snapshot, err error) {
		if made, err = export.OpenTable(ctx, s.Store); err == nil {
			stateAt = s.stateAt()
			next.LastRow, err = s.lastRow(ctx, made.Revision)
		}
		return made, err
	}, s.About)
	if err != nil {
		return fmt.Errorf("writing a base: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	b, err := s.baseOf(ctx, made.Revision, stateAt)
	if err != nil {
		return err
	}
	if b.At.IsZero() {
		b.At = b.StateAt // the log does not say; nothing later is in the base
	}
	b.Before, b.Until, b.Bytes = next.Newest, next.Until, file.Size
	if err := s.compare(ctx); err != nil {
		return err
	}
	if b.Hash, err = s.sendBase(ctx, b.name(), file); err != nil {
		return err
	}
	next.Bases, next.Until, next.LogBytes = append(slices.Clone(next.Bases), b), later(b.At, complete), 0
	return s.publish(ctx, next, true)
}

// sendBase copies a file to the place, and returns its hash there.
func (s *shipper) sendBase(ctx context.Context, name string, file *snapshot.File) (hash string, err error) {
	sum := sha256.New()
	write := s.to.seal(func(w io.Writer) error {
		return file.Send(func(block []byte, _ int64) error {
			_, err := w.Write(block)
			return errors.Join(err, ctx.Err())
		})
	})
	err = s.to.Create(ctx, name, func(w io.Writer) error { return write(io.MultiWriter(w, sum)) })
	return hex.EncodeToString(sum.Sum(nil)), err
}

func (s *shipper) tempDir() string {
	if d, ok := s.To.(directory); ok && s.TempDir == "" && len(s.Recipients) == 0 {
		return string(d)
	}
	return cmp.Or(s.TempDir, os.TempDir())
}
