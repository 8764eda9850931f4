package election

import "bytes"

// The Elector as its lock sees it; see observer.

func (e *Elector) attempting() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.round != nil {
		e.round.attempted = true
	}
}

func (e *Elector) saw(r *row) (holder string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	released := e.noteRow(r)
	if r == nil {
		return "" // nobody's: a leader writes it again
	}
	// A record that another process wrote ends leading even if it names this
	// member: somebody may have led in between, and handed the lock back.
	if l := e.lead; l != nil && !l.lost && !e.lock.wroteHeld(r) {
		l.lost = true
		e.log.Warn("another process took the lock, leading ends", "holder", r.HolderIdentity)
		l.cancel()
		e.endRound()
	}
	switch {
	case released:
		return ""
	case e.held && r.HolderIdentity == e.cfg.Identity && r.Incarnation != e.lock.incarnation && r.TransferredBy == "":
		// This process held the lock before, so that the other one under its
		// identity is the younger. It is not this one's to renew, or the two
		// would take the lock from each other for ever.
		return r.HolderIdentity + ", process " + r.Incarnation
	}
	return r.HolderIdentity
}

// noteRow takes notice of what the row holds; e.mu is held. It returns whether
// the row reads as released because its holder was reported dead.
func (e *Elector) noteRow(r *row) (released bool) {
	e.seen = r
	if r == nil {
		e.setHolder("")
		return false
	}
	if e.dead != nil {
		if e.dead.covers(r) {
			released = e.dead.confirmed
		} else {
			e.dead = nil
		}
	}
	if released {
		e.setHolder("")
	} else {
		e.setHolder(r.HolderIdentity)
	}
	return released
}

func (e *Elector) mayWrite(replaced *row) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lead != nil {
		if e.lead.lost {
			return errLost
		}
		return nil
	}
	if e.ctx.Err() != nil {
		return errStopping
	}
	// A transfer to this member is somebody's decision; its own record that it
	// failed to release is not.
	named := replaced != nil && replaced.HolderIdentity == e.cfg.Identity && replaced.TransferredBy != ""
	if !named && e.standBack.active() {
		return errStandingBack
	}
	return nil
}

func (e *Elector) wrote(r *row, handedOver bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteRow(r)
	e.held = true
	if e.lead == nil && e.ctx.Err() == nil { // else leave releases it
		e.begin(handedOver)
	}
}

func (e *Elector) failed(error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lead != nil {
		e.metrics.renewalFailures.Inc()
	}
}

// deathReport is about a holder whose process may be gone, or is if it is confirmed.
type deathReport struct {
	holder string
	// incarnation is the process meant; empty if no record of it was seen yet.
	incarnation string
	// raw is the row as it was first read after the suspicion, nil before.
	raw       []byte
	confirmed bool
}

// covers reports whether r is still the record that the process had written when it
// was suspected.
func (d *deathReport) covers(r *row) bool {
	switch {
	case r.HolderIdentity != d.holder:
		return false
	case d.raw != nil:
		return bytes.Equal(d.raw, r.raw)
	case d.incarnation != "" && d.incarnation != r.Incarnation:
		return false
	}
	d.raw = r.raw
	return true
}

// Suspect says that the process that leads as holder may be gone. It makes a candidate
// look at the lock at once, and remember the record that it finds. It returns at
// once.
//
// A record that is renewed after that look, or was written by another process under
// the same identity, ends the suspicion, as does another holder. A suspicion of
// the same process that has not ended goes on. Suspicions of no holder and of
// this member itself are ignored, and so are all suspicions of a leader.
func (e *Elector) Suspect(holder string) {
	if holder == "" || holder == e.cfg.Identity {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lead != nil || e.dead != nil && e.dead.holder == holder {
		return
	}
	e.dead = &deathReport{holder: holder}
	if e.seen != nil && e.seen.HolderIdentity == holder {
		e.dead.incarnation = e.seen.Incarnation
	}
	e.retry()
}

// ReportDead confirms a suspicion: there is evidence that the process is gone. The lock
// then reads as released while its record is the one that Suspect found, and an attempt
// to take it begins at once. ReportDead reports whether the suspicion has not ended
// as far as this member has seen. A wrong report costs a change of leaders.
func (e *Elector) ReportDead(holder string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lead != nil || e.dead == nil || e.dead.holder != holder {
		return false
	}
	if !e.dead.confirmed {
		e.dead.confirmed = true
		e.log.Info("the lock's holder was reported dead", "holder", holder)
	}
	e.retry()
	return true
}
