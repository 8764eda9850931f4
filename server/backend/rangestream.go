package backend

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
)

// maxSortedStream bounds the keys and values of a range that a stream sorts: they are
// in memory as a whole.
const maxSortedStream = 64 << 20

// RangeStream answers q, which has no sort order but ascending keys, and no revision
// filters, in chunks of about chunkBytes bytes read as they are sent. If q has another
// target without an order, the range is sorted by it as Range does, and may have
// maxSortedStream bytes, else the error is ErrSortTooLarge. send gets the records of
// each chunk, in order; only the last call, marked so, has Revision, Count and More, and
// it may come without records.
func (b *Backend) RangeStream(ctx context.Context, q *RangeRequest, linearizable bool, chunkBytes int, send func(chunk *RangeResult, last bool) error) error {
	cur, err := b.boundFrontier(ctx, linearizable)
	if err != nil {
		return err
	}
	rev, err := b.readRevision(q.Revision, cur)
	if err != nil {
		return err
	}
	s := &rangeStreamer{q: q, read: b.reader.at(rev), chunkBytes: chunkBytes, maxSorted: b.cfg.maxSortedStream, send: send, last: &RangeResult{Revision: cur}}
	if err := s.run(ctx); err != nil {
		return err
	}
	if len(q.End) != 0 {
		b.metrics.countRange(s.read.table)
	}
	return send(s.last, true)
}

type rangeStreamer struct {
	q          *RangeRequest
	read       *reading
	chunkBytes int
	maxSorted  int
	send       func(*RangeResult, bool) error

	last  *RangeResult // collects the chunk that is not sent yet
	bytes int
	sent  int64
	err   error
}

func (s *rangeStreamer) run(ctx context.Context) error {
	if s.q.CountOnly || len(s.q.End) == 0 {
		res, err := s.read.rangeOf(ctx, s.q)
		if merr := s.read.stillReadable(ctx); merr != nil {
			return merr
		}
		if err != nil {
			return err
		}
		s.last.Records, s.last.Count, s.last.More = res.Records, res.Count, res.More
		return nil
	}
	want := s.q.Limit
	if want > 0 {
		want++
	}
	if s.q.SortBy != SortByKey {
		return s.runSorted(ctx, want)
	}
	err := s.read.scan(ctx, s.q.KeyRange, !s.q.KeysOnly, want, func(records []*coder.Record) bool {
		s.q.strip(records)
		for _, rec := range records {
			if !s.take(ctx, rec) {
				return false
			}
		}
		return true
	})
	if s.err != nil {
		return s.err
	}
	if merr := s.read.stillReadable(ctx); merr != nil {
		return merr
	}
	if err != nil {
		return err
	}
	s.last.Count = s.sent
	return s.count(ctx)
}

// count makes Count that of the whole range if there is more than was sent.
func (s *rangeStreamer) count(ctx context.Context) (err error) {
	if s.last.More {
		s.last.Count, err = s.read.count(ctx, s.q.KeyRange)
		if err == nil {
			err = s.read.stillReadable(ctx)
		}
	}
	return err
}

// runSorted reads up to want records, 0 for all, before it sends the first.
func (s *rangeStreamer) runSorted(ctx context.Context, want int64) error {
	var all []*coder.Record
	size, tooLarge := 0, false
	err := s.read.scan(ctx, s.q.KeyRange, !s.q.KeysOnly || s.q.SortBy == SortByValue, want, func(records []*coder.Record) bool {
		for _, rec := range records {
			if want > 0 && int64(len(all)) == want {
				return false
			}
			size += itemSize(rec)
			if tooLarge = size > s.maxSorted; tooLarge {
				return false
			}
			all = append(all, rec)
		}
		return true
	})
	if merr := s.read.stillReadable(ctx); merr != nil {
		return merr
	}
	if err != nil {
		return err
	}
	if tooLarge {
		return ErrSortTooLarge
	}
	res := &RangeResult{}
	s.q.finish(res, all)
	for _, rec := range res.Records {
		if !s.take(ctx, rec) {
			return s.err
		}
	}
	s.last.Count, s.last.More = int64(len(res.Records)), res.More
	return s.count(ctx)
}

// take adds one record, sending the chunk before if it is full.
func (s *rangeStreamer) take(ctx context.Context, rec *coder.Record) bool {
	if s.q.Limit > 0 && s.sent == s.q.Limit {
		s.last.More = true
		return false
	}
	size := len(rec.Key) + len(rec.Value) + 64
	if s.bytes > 0 && s.bytes+size > s.chunkBytes {
		if s.err = s.read.stillReadable(ctx); s.err != nil {
			return false
		}
		if s.err = s.send(&RangeResult{Records: s.last.Records}, false); s.err != nil {
			return false
		}
		s.last.Records, s.bytes = nil, 0
	}
	s.last.Records = append(s.last.Records, rec)
	s.bytes += size
	s.sent++
	return true
}
