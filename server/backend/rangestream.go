package backend

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
)

// RangeStream answers q, which has no sort order but the key's and no revision
// filters, in chunks of about chunkBytes bytes read as they are sent. send gets
// the records of each chunk, in key order; only the last call, marked so, has
// Revision, Count and More, and it may come without records.
func (b *Backend) RangeStream(ctx context.Context, q *RangeRequest, linearizable bool, chunkBytes int, send func(chunk *RangeResult, last bool) error) error {
	cur, err := b.boundFrontier(ctx, linearizable)
	if err != nil {
		return err
	}
	rev, err := b.readRevision(q.Revision, cur)
	if err != nil {
		return err
	}
	s := &rangeStreamer{q: q, read: b.reader.at(rev), chunkBytes: chunkBytes, send: send, last: &RangeResult{Revision: cur}}
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
	if s.last.More {
		s.last.Count, err = s.read.count(ctx, s.q.KeyRange)
		if err == nil {
			err = s.read.stillReadable(ctx)
		}
	}
	return err
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
