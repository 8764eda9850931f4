package history

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"
)

// Recorder notes the requests of any number of clients. It is safe for
// concurrent use.
type Recorder struct {
	mu     sync.Mutex
	lastID int
	newest int64 // the newest revision that any client received
	ops    []*Op
	reads  []*Read
	leases map[int64]*Lease
	acked  int
	grew   chan struct{} // closed and replaced when acked rises
	window               // of a request that is on its way just now
}

// NewRecorder returns an empty Recorder.
func NewRecorder() *Recorder {
	return &Recorder{leases: make(map[int64]*Lease), grew: make(chan struct{})}
}

// Begin notes a request that is about to be sent. Compose gets the id of the
// request, for the tokens of its values.
func (r *Recorder) Begin(compose func(id int) Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastID++
	op := compose(r.lastID)
	op.ID, op.MinRevision, op.window = r.lastID, r.newest, r.window
	r.ops = append(r.ops, &op)
	if l := r.leases[op.Revoke]; l != nil {
		l.Revoking = true
	}
	return &op
}

// Finish notes the answer to an op, or why there is none.
func (r *Recorder) Finish(op *Op, outcome Outcome, revision int64, answer proto.Message, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Outcome, op.Revision, op.Answer, op.Err = outcome, revision, answer, err
	op.compactable = r.compactable
	r.saw(revision)
	if l := r.leases[op.Revoke]; l != nil && outcome == Applied {
		l.Revoked = true
	}
	if outcome == Applied {
		r.acked++
		close(r.grew)
		r.grew = make(chan struct{})
	}
}

// BeginRead notes a read that is about to be sent.
func (r *Recorder) BeginRead(read Read) *Read {
	r.mu.Lock()
	defer r.mu.Unlock()
	read.MinRevision, read.window = r.newest, r.window
	return &read
}

// FinishRead notes the answer to a read; without an answer, there is nothing to
// note.
func (r *Recorder) FinishRead(read *Read, header int64, answer proto.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read.Header, read.Answer, read.compactable = header, answer, r.compactable
	// A serializable read may be stale, but what it shows has happened.
	r.saw(header)
	r.reads = append(r.reads, read)
}

// RefuseRead notes that a read was refused.
func (r *Recorder) RefuseRead(read *Read, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read.Err, read.compactable = err, r.compactable
	r.reads = append(r.reads, read)
}

// BeginCompact notes a compaction that is about to be asked for; FinishCompact that it was
// acknowledged.
func (r *Recorder) BeginCompact(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compactable = max(r.compactable, revision)
}

// FinishCompact notes that the compaction was acknowledged.
func (r *Recorder) FinishCompact(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compacted = max(r.compacted, revision)
}

// Compactions returns the newest compaction that was acknowledged, and the newest that was asked for.
func (r *Recorder) Compactions() (acknowledged, asked int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.compacted, r.compactable
}

// BeginGrant notes a lease that is about to be asked for; FinishGrant that it
// was granted.
func (r *Recorder) BeginGrant(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[id] = &Lease{ID: id}
}

// FinishGrant notes that the lease was granted.
func (r *Recorder) FinishGrant(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[id].Granted = true
}

func (r *Recorder) saw(revision int64) { r.newest = max(r.newest, revision) }

// Newest returns the newest revision that any client received, 0 if none was.
func (r *Recorder) Newest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// Acked returns how many requests were acknowledged with an effect.
func (r *Recorder) Acked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// AwaitAcked returns when Acked is at least n, or with ctx's error.
func (r *Recorder) AwaitAcked(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		acked, grew := r.acked, r.grew
		r.mu.Unlock()
		if acked >= n {
			return nil
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take returns what was recorded since the last call, including ops without an answer.
// The caller must ensure that no client finishes those afterwards.
func (r *Recorder) take() (ops []*Op, reads []*Read, leases map[int64]*Lease, newest int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ops, reads = r.ops, r.reads
	r.ops, r.reads = nil, nil
	return ops, reads, r.leases, r.newest
}
