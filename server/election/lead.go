package election

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Why the row must not be written; told to client-go, for its log.
var (
	errLost         = errors.New("election: the lock was lost")
	errStopping     = errors.New("election: the elector is stopping")
	errStandingBack = errors.New("election: standing back after Lead returned")
)

// leadership is one call of Lead.
type leadership struct {
	begun  time.Time
	ctx    context.Context // Lead's
	cancel context.CancelFunc
	done   chan struct{} // closed when Lead has returned
	err    error         // Lead's; set before done is closed
	// alone: Lead returned though its context had not ended; set before done is closed.
	alone bool

	// Under Elector.mu:
	lost     bool // the row was seen to be another process's
	returned bool
	transfer *transfer // nil if none is asked for
}

// transfer is what Transfer asks for.
type transfer struct {
	successor string
	result    chan error // buffered
}

// begin starts Lead; e.mu is held.
func (e *Elector) begin(handedOver bool) {
	ctx, cancel := context.WithCancel(e.ctx)
	l := &leadership{begun: time.Now(), ctx: ctx, cancel: cancel, done: make(chan struct{})}
	e.lead = l
	e.metrics.isLeader.Set(1)
	e.log.Info("holding the lock, leading", "handed_over", handedOver)
	go func() { // end waits for it
		defer close(l.done)
		l.err = e.cfg.Lead(ctx, handedOver)
		l.alone = ctx.Err() == nil
		e.mu.Lock()
		defer e.mu.Unlock()
		l.returned = true
		e.endRound()
	}()
}

// ending reports whether the leadership is over, or will be once Lead returns.
// Run's goroutine only, which is the one that sets lost.
func (l *leadership) ending() bool {
	select {
	case <-l.done:
		return true
	default:
		return l.lost
	}
}

// end waits for Lead to return, and gives the lock up unless it was lost.
func (e *Elector) end(l *leadership) {
	<-l.done
	l.cancel()
	e.metrics.isLeader.Set(0)
	e.mu.Lock()
	lost, t := l.lost, l.transfer // final: nobody asks for a transfer once Lead has returned
	e.mu.Unlock()

	clean := l.err == nil
	if l.alone {
		e.judgeReturn(l)
	} else {
		e.log.Info("stopped leading", "lost", lost, "result", l.err)
	}
	err := ErrNotHolder
	if !lost {
		successor := ""
		if t != nil {
			successor = t.successor
		}
		err = e.release(successor, clean)
	}
	e.mu.Lock()
	e.lead = nil
	e.mu.Unlock()
	if t != nil {
		t.result <- err
	}
}

// judgeReturn deals with a Lead that returned though nobody asked it to.
func (e *Elector) judgeReturn(l *leadership) {
	e.mu.Lock()
	delay := e.standBack.after(time.Since(l.begun), e.cfg.RetryPeriod)
	e.mu.Unlock()
	if l.err == nil {
		e.log.Info("leading ended by itself, standing back", "for", delay)
		return
	}
	e.metrics.leadFailures.Inc()
	e.log.Error("leading failed, standing back", "error", l.err, "for", delay)
}

// Transfer hands the lock over to another member: it ends Lead's context, waits
// for Lead to return, and makes the record name successor, marked as handed over
// if Lead returned nil. Successor leads as soon as it looks at the row; while it
// does not, nobody leads until the record has expired as any other.
// Naming this member itself does nothing.
//
// It returns ErrNotHolder, ErrNoSuccessor, ErrTransferring, or why the row could
// not be written. If ctx ends first it returns ctx's error, and the transfer goes on.
func (e *Elector) Transfer(ctx context.Context, successor string) error {
	if successor == "" {
		return ErrNoSuccessor
	}
	t := &transfer{successor: successor, result: make(chan error, 1)}
	if err := e.startTransfer(t); err != nil || successor == e.cfg.Identity {
		return err
	}
	select {
	case err := <-t.result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("election: waiting for the transfer: %w", ctx.Err())
	}
}

func (e *Elector) startTransfer(t *transfer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lead
	switch {
	case l == nil || l.lost || l.returned:
		return ErrNotHolder
	case t.successor == e.cfg.Identity:
		return nil
	case l.transfer != nil:
		return ErrTransferring
	}
	l.transfer = t
	l.cancel()
	return nil
}
