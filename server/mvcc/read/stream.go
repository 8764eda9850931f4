package read

import (
	"cmp"
	"context"
	"errors"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
)

// RangeStream answers q in chunks, see Reading.RangeStream. The request timeout bounds the choice of
// the revision, and not the answer. The newest revision is chosen again if compaction overtook it before anything was
// sent. Errors: those of Node and of Reading.RangeStream, ErrOvertaken.
func (r *Reader) RangeStream(ctx context.Context, as auth.Permit, q *mvcc.RangeRequest, linearizable bool,
	chunkBytes int, send func(chunk *mvcc.RangeResult, last bool) error) error {
	for range MaxRaces {
		now, err := r.Now(ctx, as, linearizable)
		if err != nil {
			return err
		}
		sent := false
		err = now.RangeStream(ctx, q, chunkBytes, func(chunk *mvcc.RangeResult, last bool) error {
			sent = true
			return send(chunk, last)
		})
		if sent || q.Revision > 0 || !errors.Is(err, mvcc.ErrCompacted) {
			return err
		}
		if err := r.awaitMark(ctx); err != nil {
			return err
		}
	}
	return ErrOvertaken
}

// awaitMark waits until this node has reached the compact revision that it knows.
func (r *Reader) awaitMark(ctx context.Context) error {
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	return mvcc.PublicError(ctx, r.node.Await(ctx, r.node.CompactRevision()))
}

// RangeStream answers q at the revision that it asks for when r is at the newest one, in chunks
// of about chunkBytes bytes read as they are sent. q has no sort order but ascending keys, and no
// revision filters. If it has another target without an order, the range is sorted by it as
// Range does, and may have MaxSorted bytes, else the error is mvcc.ErrSortTooLarge. send gets the
// records of each chunk, in order; only the last call, marked so, has Revision, Count and More,
// and it may come without records.
func (r *Reading) RangeStream(ctx context.Context, q *mvcc.RangeRequest, chunkBytes int,
	send func(chunk *mvcc.RangeResult, last bool) error) error {
	read, err := r.Past(q.Revision)
	if err != nil {
		return err
	}
	s := &rangeStreamer{q: q, read: read, chunkBytes: chunkBytes, send: send, last: &mvcc.RangeResult{Revision: r.rev}}
	defer func() { r.reader.sorted.Add(-int64(s.sorted)) }()
	if err := s.run(ctx); err != nil {
		return err
	}
	if len(q.End) != 0 {
		r.reader.node.CountRange(read.table)
	}
	return send(s.last, true)
}

const (
	// firstPageBytes and lastPageBytes bound the rows that a stream reads at once: as much is in memory for a client that
	// takes nothing, first and later.
	firstPageBytes = 64 << 10
	lastPageBytes  = 1 << 20
)

type rangeStreamer struct {
	q          *mvcc.RangeRequest
	read       *Reading
	chunkBytes int
	send       func(*mvcc.RangeResult, bool) error

	last  *mvcc.RangeResult // collects the chunk that is not sent yet
	bytes int
	sent  int64
	err   error

	sorted int // bytes of the range that it sorts
}

func (s *rangeStreamer) run(ctx context.Context) error {
	if s.q.CountOnly || len(s.q.End) == 0 {
		res, err := s.read.Range(ctx, s.q)
		if err = cmp.Or(s.read.Check(ctx), err); err != nil {
			return err
		}
		s.last.Records, s.last.Count, s.last.More = res.Records, res.Count, res.More
		return nil
	}
	want := s.q.Limit
	if want > 0 {
		want++
	}
	if s.q.SortBy != mvcc.SortByKey {
		return s.runSorted(ctx, want)
	}
	s.read.pageBytes, s.read.turn = firstPageBytes, min(s.read.turn, 1) // its client may take its time
	err := s.read.Scan(ctx, s.q.Span(), !s.q.KeysOnly, want, func(records []*coder.Record) bool {
		s.q.Strip(records)
		for _, rec := range records {
			if !s.add(ctx, rec) {
				return false
			}
		}
		s.read.pageBytes = min(2*s.read.pageBytes, lastPageBytes)
		return true
	})
	if s.err != nil {
		return s.err
	}
	if err = cmp.Or(s.read.Check(ctx), err); err != nil {
		return err
	}
	s.last.Count = s.sent
	return s.count(ctx)
}

// count makes Count that of the whole range if there is more than was sent.
func (s *rangeStreamer) count(ctx context.Context) (err error) {
	if s.last.More {
		s.last.Count, err = s.read.Count(ctx, s.q.Span())
		if err == nil {
			err = s.read.Check(ctx)
		}
	}
	return err
}

// runSorted reads up to want records, 0 for all, before it sends the first.
func (s *rangeStreamer) runSorted(ctx context.Context, want int64) error {
	var all []*coder.Record
	r, tooMuch := s.read.reader, false
	err := s.read.Scan(ctx, s.q.Span(), !s.q.KeysOnly || s.q.SortBy == mvcc.SortByValue, want,
		func(records []*coder.Record) bool {
			for _, rec := range records {
				if want > 0 && int64(len(all)) == want {
					return false
				}
				n := keyspace.Size(rec)
				s.sorted += n
				if tooMuch = r.sorted.Add(int64(n)) > int64(r.maxSorted); tooMuch {
					return false
				}
				all = append(all, rec)
			}
			return true
		})
	if err = cmp.Or(s.read.Check(ctx), err); err != nil {
		return err
	}
	switch {
	case s.sorted > r.maxSorted:
		return mvcc.ErrSortTooLarge
	case tooMuch:
		return mvcc.ErrTooManyRequests
	}
	res := &mvcc.RangeResult{}
	s.q.Finish(res, all)
	for _, rec := range res.Records {
		if !s.add(ctx, rec) {
			return s.err
		}
	}
	s.last.Count, s.last.More = int64(len(res.Records)), res.More
	return s.count(ctx)
}

// add adds one record, sending the chunk before if it is full.
func (s *rangeStreamer) add(ctx context.Context, rec *coder.Record) bool {
	if s.q.Limit > 0 && s.sent == s.q.Limit {
		s.last.More = true
		return false
	}
	size := len(rec.Key) + len(rec.Value) + 64
	if s.bytes > 0 && s.bytes+size > s.chunkBytes {
		if s.err = s.read.Check(ctx); s.err != nil {
			return false
		}
		if s.err = s.send(&mvcc.RangeResult{Records: s.last.Records}, false); s.err != nil {
			return false
		}
		s.last.Records, s.bytes = nil, 0
	}
	s.last.Records = append(s.last.Records, rec)
	s.bytes += size
	s.sent++
	return true
}
