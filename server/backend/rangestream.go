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
	s := &rangeStreamer{q: q, chunkBytes: chunkBytes, send: send, last: &RangeResult{Revision: cur}}
	if err := s.run(ctx, b, rev); err != nil {
		return err
	}
	return send(s.last, true)
}

type rangeStreamer struct {
	q          *RangeRequest
	chunkBytes int
	send       func(*RangeResult, bool) error

	last  *RangeResult // collects the chunk that is not sent yet
	bytes int
	sent  int64
	err   error
}

func (s *rangeStreamer) run(ctx context.Context, b *Backend, rev int64) error {
	if s.q.CountOnly || len(s.q.End) == 0 {
		res, err := b.reader.rangeAt(ctx, s.q, rev, false)
		if merr := b.stillReadable(ctx, rev); merr != nil {
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
	err := b.reader.scan(ctx, s.q.KeyRange, rev, !s.q.KeysOnly, want, func(rec *coder.Record) bool {
		return s.take(ctx, b, rev, rec)
	})
	if s.err != nil {
		return s.err
	}
	if merr := b.stillReadable(ctx, rev); merr != nil {
		return merr
	}
	if err != nil {
		return err
	}
	s.last.Count = s.sent
	if s.last.More {
		s.last.Count, err = b.reader.count(ctx, s.q.KeyRange, rev)
		if err == nil {
			err = b.stillReadable(ctx, rev)
		}
	}
	return err
}

// take adds one record, sending the chunk before if it is full.
func (s *rangeStreamer) take(ctx context.Context, b *Backend, rev int64, rec *coder.Record) bool {
	if s.q.Limit > 0 && s.sent == s.q.Limit {
		s.last.More = true
		return false
	}
	one := []*coder.Record{rec}
	s.q.strip(one)
	size := len(one[0].Key) + len(one[0].Value) + 64
	if s.bytes > 0 && s.bytes+size > s.chunkBytes {
		if s.err = b.stillReadable(ctx, rev); s.err != nil {
			return false
		}
		if s.err = s.send(&RangeResult{Records: s.last.Records}, false); s.err != nil {
			return false
		}
		s.last.Records, s.bytes = nil, 0
	}
	s.last.Records = append(s.last.Records, one[0])
	s.bytes += size
	s.sent++
	return true
}
