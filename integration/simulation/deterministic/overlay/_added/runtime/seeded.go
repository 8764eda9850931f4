package runtime

// This file is added to the runtime by an overlay, for simulations only. It makes the goroutines of one testing/synctest
// bubble run one at a time, in an order that a seed chooses, and gives the bubble random numbers of its own.
//
// One goroutine of the bubble holds the turn. It keeps it while the garbage collector or the system monitor preempts it,
// and during system calls. It loses it when it blocks, yields or ends. Then the next goroutine is drawn from those that
// are runnable. Goroutines outside the bubble run whenever the scheduler likes, and do not change the order inside.

import (
	"internal/abi"
	"internal/runtime/math"
	"internal/runtime/sys"
	"unsafe"
)

var seeded struct {
	lock   mutex
	armed  bool            // the next bubble is seeded
	bubble *synctestBubble // the seeded bubble, or nil
	turn   guintptr        // the goroutine of the bubble that may run
	queue  gQueue          // the other runnable goroutines of the bubble
	picks  stream          // of the next goroutine
	seed   uint64

	// Numbers drawn since the last switch. They start anew from the seed and the number of switches, so that something
	// that happens only once in a process, when it is first used, changes no numbers after the next switch.
	slice  uint64
	choice stream // of select, and of timers of one instant
	random stream // of rand
	yields stream

	shuffle uint32 // of 256 draws of the next goroutine, how many are random; the others take the oldest
	yield   uint32 // of 65536 locks and channel operations, how many let other goroutines run first

	pointers uint64 // pointers numbered in the bubble
	others   uint64 // pointers numbered outside
	switches uint64 // draws of the next goroutine
	strays   uint64 // goroutines that got the turn although another one had it
}

//go:linkname seeded_arm
func seeded_arm(seed uint64, shuffle, yield uint32) {
	seeded.armed = true
	seeded.seed = seed
	seeded.shuffle = shuffle
	seeded.yield = yield
}

// stream is the state of wyrand.
type stream uint64

//go:nosplit
func (s *stream) next() uint64 {
	*s += 0xa0761d6478bd642f
	hi, lo := math.Mul64(uint64(*s), uint64(*s)^0xe7037ed1a0b428db)
	return hi ^ lo
}

func seededSlice() {
	// The first numbers of wyrand are similar for similar states.
	s := stream(seeded.seed ^ seeded.switches*0x9e3779b97f4a7c15)
	for range 4 {
		s.next()
	}
	seeded.slice = s.next()
	seeded.choice = stream(s.next())
	seeded.random = stream(s.next())
	seeded.yields = stream(s.next())
}

//go:linkname seeded_stats
func seeded_stats() (switches, strays uint64) {
	return seeded.switches, seeded.strays
}

func seededStart(bubble *synctestBubble, gp *g) {
	if !seeded.armed {
		return
	}
	if seeded.bubble != nil {
		panic("two seeded bubbles at a time")
	}
	seeded.armed = false
	seeded.queue = gQueue{}
	seeded.pointers, seeded.switches, seeded.strays = 0, 0, 0
	seededSlice()
	seeded.picks = stream(seeded.slice)
	seeded.turn.set(gp)
	seeded.bubble = bubble
}

func seededStop(bubble *synctestBubble) {
	if seeded.bubble == bubble {
		seeded.bubble = nil
		seeded.turn = 0
	}
}

// seededPut queues gp, unless it is outside the bubble or has the turn: then the caller queues it as usual.
//
//go:nowritebarrierrec
func seededPut(gp *g) bool {
	if gp.bubble == nil || gp.bubble != seeded.bubble || seeded.turn.ptr() == gp {
		return false
	}
	lock(&seeded.lock)
	seeded.queue.pushBack(gp)
	unlock(&seeded.lock)
	return true
}

// seededRelease takes the turn from gp.
//
//go:nowritebarrierrec
func seededRelease(gp *g) {
	if gp.bubble != nil && gp.bubble == seeded.bubble && seeded.turn.ptr() == gp {
		seeded.turn = 0
	}
}

// seededRun notes that gp runs.
//
//go:nowritebarrierrec
func seededRun(gp *g) {
	if gp.bubble == nil || gp.bubble != seeded.bubble {
		return
	}
	if seeded.turn != 0 && seeded.turn.ptr() != gp {
		seeded.strays++
	}
	seeded.turn.set(gp)
}

//go:nowritebarrierrec
func seededRunnable() bool {
	return seeded.bubble != nil && seeded.turn == 0 && seeded.queue.size != 0
}

// seededGet draws the next goroutine of the bubble, or returns nil if none may run now.
func seededGet() *g {
	if !seededRunnable() {
		return nil
	}
	lock(&seeded.lock)
	defer unlock(&seeded.lock)
	if !seededRunnable() {
		return nil
	}
	seeded.switches++
	seededSlice()
	n := uint32(seeded.queue.size)
	skip := uint32(0)
	if n > 1 && uint32(seeded.picks.next()>>56) < seeded.shuffle {
		skip = uint32(uint64(uint32(seeded.picks.next())) * uint64(n) >> 32)
	}
	var prev *g
	gp := seeded.queue.head.ptr()
	for range skip {
		prev, gp = gp, gp.schedlink.ptr()
	}
	if prev == nil {
		gp = seeded.queue.pop()
	} else {
		prev.schedlink = gp.schedlink
		if gp.schedlink == 0 {
			seeded.queue.tail.set(prev)
		}
		seeded.queue.size--
	}
	gp.schedlink = 0
	seeded.turn.set(gp)
	return gp
}

// seededHere reports whether the caller runs in the seeded bubble.
//
//go:nosplit
func seededHere() bool {
	if seeded.bubble == nil {
		return false
	}
	gp := getg().m.curg
	return gp != nil && gp.bubble == seeded.bubble
}

func seededCheap() uint32 {
	if seededHere() {
		return uint32(seeded.choice.next())
	}
	return cheaprand()
}

func seededCheapN(n uint32) uint32 {
	return uint32(uint64(seededCheap()) * uint64(n) >> 32)
}

// seededYield lets other goroutines of the bubble run before a lock or a channel operation, now and then. Locks of
// package variables are left out: many of them are taken only when something is first used in a process.
//
//go:linkname seededYield sync.seededYield
func seededYield(p unsafe.Pointer) {
	if seeded.yield == 0 || !seededHere() {
		return
	}
	gp := getg()
	if gp != gp.m.curg || gp.m.locks != 0 || gp.m.mallocing != 0 || gp.m.preemptoff != "" || seeded.queue.size == 0 {
		return
	}
	if spanOfHeap(uintptr(p)) == nil {
		return
	}
	if uint32(seeded.yields.next()>>48) < seeded.yield {
		mcall(gosched_m)
	}
}

// seededPointer numbers the pointers in the order in which they are first hashed, and hashes the number. The number
// belongs to the object, so that another object at the same address, later, gets another number.
func seededPointer(p unsafe.Pointer, h uintptr) uintptr {
	id := uint64(uintptr(p))
	if span := spanOfHeap(uintptr(p)); span != nil {
		id = seededID(span, p)
	}
	return memhash64(noescape(unsafe.Pointer(&id)), h)
}

type specialSeeded struct {
	_       sys.NotInHeap
	special special
	id      uint64
}

const _KindSpecialSeeded = 64

func seededID(span *mspan, p unsafe.Pointer) uint64 {
	mp := acquirem()
	span.ensureSwept()
	offset := uintptr(p) - span.base()
	lock(&span.speciallock)
	iter, exists := span.specialFindSplicePoint(offset, _KindSpecialSeeded)
	if !exists {
		lock(&mheap_.speciallock)
		s := (*specialSeeded)(mheap_.specialSeededAlloc.alloc())
		unlock(&mheap_.speciallock)
		if seededHere() {
			seeded.pointers++
			s.id = seeded.pointers
		} else {
			seeded.others++
			s.id = seeded.others | 1<<63
		}
		s.special.kind = _KindSpecialSeeded
		s.special.offset = offset
		s.special.next = *iter
		*iter = (*special)(unsafe.Pointer(s))
		spanHasSpecials(span)
	}
	id := (*specialSeeded)(unsafe.Pointer(*iter)).id
	unlock(&span.speciallock)
	releasem(mp)
	KeepAlive(p)
	return id
}

// seeded_keyHash hashes a key of a map. Keys that hold pointers are hashed by typehash, which knows the type, and not
// by the function that the compiler made, which sees bytes only. The seed of the map is ignored.
//
//go:linkname seeded_keyHash internal/runtime/maps.seededHash
func seeded_keyHash(t *abi.MapType, key unsafe.Pointer) uintptr {
	const seed = 0x51ed270b
	if t.Key.PtrBytes == 0 {
		return t.Hasher(key, seed)
	}
	return typehash(t.Key, key, seed)
}
