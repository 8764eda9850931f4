package guard

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// nameHash stands for a user name, which may be long.
type nameHash [sha256.Size]byte

// login is what a password is checked for: a user name from an address.
type login struct {
	source string
	name   nameHash
	exists bool // a user has the name
}

func loginOf(source, name string, exists bool) login {
	return login{source: source, name: sha256.Sum256([]byte(name)), exists: exists}
}

// ownWork is the hashing of passwords for callers that may set them.
var ownWork = login{exists: true}

// turns decides which password is hashed or compared next: a client needs no credentials to ask
// for that, and cannot be told from an attacker behind the same address until it has a turn. So no
// login is refused because others failed, but it may wait for a different time:
//
//   - Every other turn belongs to logins (address and name) that succeeded before, if any waits.
//   - Addresses without a recent failure come first, then logins with fewer failures.
//   - Names that no user has come last: an attacker can invent any number of them.
//   - Names take turns.
//   - Of one login, connections without a recent failure come first.
//
// A login whose failures are used up has at most one turn at a time. When too many wait, the last
// in this order is refused: DESIGN.md says whom that meets.
type turns struct {
	logins    *failures[login] // with the name of a user
	invented  *failures[login] // without
	addresses *failures[string]
	conns     *failures[string] // by the client's address with its port

	mu      sync.Mutex
	free    int
	running map[login]int
	known   lane // of logins that succeeded before, and ownWork
	others  lane
	last    *lane // which had the last turn
	arrived uint64
	// succeeded holds the logins that succeeded before.
	succeeded *simplelru.LRU[login, struct{}]
}

// newTurns allows slots checks at a time. In each of the two lanes waiting calls may wait.
func newTurns(slots, waiting int) *turns {
	return &turns{
		free: slots, running: make(map[login]int), known: newLane(waiting), others: newLane(waiting),
		logins: newFailures[login](loginsFree, loginInterval), invented: newFailures[login](loginsFree, loginInterval),
		addresses: newFailures[string](1, freshAfter),
		conns:     newFailures[string](1, freshAfter),
		succeeded: newLRU[login, struct{}](maxSources),
	}
}

// turn is a call that waits.
type turn struct {
	login
	conn  string    // "" if not known
	order uint64    // of arrival
	ready chan bool // receives once whether the call has a turn or is refused
}

// run calls check when it is l's turn. conn is the client's address with its port. check reports whether the password
// is right. Errors: mvcc.ErrTooManyRequests if too many calls wait, ctx's.
func (q *turns) run(ctx context.Context, l login, conn string, check func() bool) error {
	t, queue := q.enter(l, conn)
	select {
	case admitted := <-t.ready:
		if !admitted {
			return mvcc.ErrTooManyRequests
		}
	case <-ctx.Done():
		if !q.leave(queue, t) && <-t.ready {
			q.end(l)
		}
		return ctx.Err()
	}
	defer q.end(l)
	if !check() {
		q.failed(t)
		return nil
	}
	q.mu.Lock()
	q.succeeded.Add(l, struct{}{})
	q.mu.Unlock()
	return nil
}

// failures returns what has the failures of a login. Invented names must not displace those of users, as what is kept
// is bounded.
func (q *turns) failures(l login) *failures[login] {
	if l.exists {
		return q.logins
	}
	return q.invented
}

func (q *turns) failed(t *turn) {
	q.failures(t.login).add(t.login)
	q.addresses.add(t.source)
	q.conns.add(t.conn)
}

// enter queues a call, and starts or refuses calls.
func (q *turns) enter(l login, conn string) (*turn, *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := &q.others
	if _, ok := q.succeeded.Get(l); ok || l == ownWork {
		queue = &q.known
	}
	q.arrived++
	t := &turn{login: l, conn: conn, order: q.arrived, ready: make(chan bool, 1)}
	queue.add(t)
	q.start()
	if len(queue.waiting) > queue.most {
		last, at := queue.waiting[0], q.place(queue, queue.waiting[0])
		for _, other := range queue.waiting[1:] {
			if p := q.place(queue, other); at.before(p) {
				last, at = other, p
			}
		}
		queue.remove(last)
		if queue == &q.others {
			q.failed(last) // else those that are refused would stay ahead of those that wait
		}
		last.ready <- false
	}
	return t, queue
}

// leave removes a call that waits. It returns false if the call waits no longer.
func (q *turns) leave(queue *lane, t *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return queue.remove(t)
}

// end ends a turn.
func (q *turns) end(l login) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	if q.running[l]--; q.running[l] == 0 {
		delete(q.running, l)
	}
	q.start()
}

// start gives the free slots to calls that wait. mu must be held.
func (q *turns) start() {
	for q.free > 0 {
		queue, other := &q.known, &q.others
		if q.last == queue {
			queue, other = other, queue
		}
		t := q.first(queue)
		if t == nil {
			queue = other
			if t = q.first(queue); t == nil {
				return
			}
		}
		q.last = queue
		queue.serve(t)
		q.free--
		q.running[t.login]++
		t.ready <- true
	}
}

// first returns the call of a lane that is next, nil if none may start.
func (q *turns) first(queue *lane) (first *turn) {
	var at place
	for _, t := range queue.waiting {
		p := q.place(queue, t)
		if (first == nil || p.before(at)) && !(q.running[t.login] > 0 && q.failures(t.login).limited(t.login)) {
			first, at = t, p
		}
	}
	return first
}

// place is where a call stands in its lane.
type place struct {
	// rank is 0 for an address without a recent failure, and more the more often the login failed.
	rank  int
	name  uint64 // when the name's next call is due
	again bool   // the connection has a recent failure
	order uint64 // of arrival
	// newest: the call that arrived last comes first. So it is among the first calls of addresses: in a flood
	// from many addresses more of them may wait than there is time for.
	newest bool
}

func (q *turns) place(queue *lane, t *turn) place {
	p := place{name: queue.names[t.name].next, again: q.conns.limited(t.conn), order: t.order}
	switch {
	case !q.addresses.limited(t.source):
	case t.exists:
		p.rank = 1 + q.logins.count(t.login)
	default: // after every user: an attacker can invent a name that never failed
		p.rank = 2 + q.logins.free
	}
	p.newest = queue == &q.others && p.rank == 0
	return p
}

func (p place) before(o place) bool {
	switch {
	case p.rank != o.rank:
		return p.rank < o.rank
	case p.newest:
		return p.order > o.order
	case p.name != o.name:
		return p.name < o.name
	case p.again != o.again:
		return o.again
	}
	return p.order < o.order
}

// lane is a queue in which names take turns. turns.mu guards it.
type lane struct {
	most    int // calls that may wait
	waiting []*turn
	served  uint64
	names   map[nameHash]*nameTurns
}

// nameTurns is what a lane knows of a name with calls that wait, or that had a turn of late.
type nameTurns struct {
	waiting int
	next    uint64 // when the name's next call is due, as a value of served
}

func newLane(most int) lane { return lane{most: most, names: make(map[nameHash]*nameTurns)} }

func (l *lane) add(t *turn) {
	n := l.names[t.name]
	if n == nil {
		n = &nameTurns{}
		l.names[t.name] = n
	}
	if n.waiting == 0 {
		n.next = max(n.next, l.served)
	}
	n.waiting++
	l.waiting = append(l.waiting, t)
}

func (l *lane) remove(t *turn) bool {
	for i, other := range l.waiting {
		if other == t {
			last := len(l.waiting) - 1
			l.waiting[i], l.waiting[last] = l.waiting[last], nil
			l.waiting = l.waiting[:last]
			n := l.names[t.name]
			if n.waiting--; n.waiting == 0 && n.next <= l.served {
				delete(l.names, t.name)
			}
			return true
		}
	}
	return false
}

// serve removes a call that has its turn. All other names that wait come before the next call of
// the same name.
func (l *lane) serve(t *turn) {
	n := l.names[t.name]
	l.remove(t)
	delete(l.names, t.name)
	l.served++
	others := uint64(0)
	for name, other := range l.names {
		switch {
		case other.waiting > 0:
			others++
		case other.next <= l.served:
			delete(l.names, name)
		}
	}
	if n.next = l.served + others; n.waiting > 0 || others > 0 {
		l.names[t.name] = n
	}
}
