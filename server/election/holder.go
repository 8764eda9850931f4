package election

// holder is who holds the lock, and the changes of it that Observed has not been
// told yet. Under Elector.mu.
type holder struct {
	name    string
	last    string // the last that was somebody
	untold  []string
	changed chan struct{} // holds a token while untold may have some; one slot
}

// Holder returns the identity in the lock's record as this member last saw it, ""
// if there is none or its holder was reported dead. A record may have expired.
func (e *Elector) Holder() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder.name
}

// setHolder is called with e.mu held.
func (e *Elector) setHolder(name string) {
	h := &e.holder
	if name == h.name {
		return
	}
	h.name = name
	if name != "" && name != h.last {
		h.last = name
		e.metrics.transitions.Inc()
	}
	if e.cfg.Observed == nil {
		return
	}
	h.untold = append(h.untold, name)
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// report calls Observed until over is closed and everything was told.
func (e *Elector) report(over <-chan struct{}) {
	for {
		select {
		case <-e.holder.changed:
			e.tell()
		case <-over:
			e.tell()
			return
		}
	}
}

func (e *Elector) tell() {
	e.mu.Lock()
	untold := e.holder.untold
	e.holder.untold = nil
	e.mu.Unlock()
	for _, name := range untold {
		e.cfg.Observed(name)
	}
}
