package peer

// Drop ends all calls that wait for an answer of the member. The next use of the
// member connects anew.
func (p *Pool) Drop(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[id]; c != nil {
		_ = c.conn.Close() // it can only say that it is closed already
		delete(p.clients, id)
	}
}

// Revoke drops the connections to processes that are no longer members'. It is called after
// each look at the members.
func (p *Pool) Revoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.clients {
		if c.dialer.outdated() {
			_ = c.conn.Close() // it can only say that it is closed already
			delete(p.clients, id)
		}
	}
}
