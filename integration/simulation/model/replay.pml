/*
 * The steps of a run that was recorded, taken one by one in the model of fence.pml. docs/model.md explains it.
 *
 * The steps are in a table (replay.h). What the database does is not in it, nor when exactly a step took effect: the
 * processes Hidden and Late do that at any time that the records allow, and Spin searches for one way to the end.
 */

#define REPLAY
#define NODES 3
#define FOLLOWERS
#define TIMED
#define TERMS 2000000000
#define RAISES 254 /* RESIGNED is more */
#define LATE 6
#define BATCHES 24 /* numbers of batches: a number is used again when its batch can no longer take effect */

/* server/timing, in microseconds. The clock of a read lease may be slow. */
#ifndef LEASE
#define LEASE 100000
#endif
#define WAIT 150000


/*
 * What the model does not allow ends this way through the records, with a reason: the line of fence.pml that has the
 * property, or one of the conditions below.
 */
#define stop(reason) c_code { refused_because(reason); }; dead = true; false
#define assert(c) if :: (c) :: else -> stop(__LINE__) fi
#define need(c, reason) if :: (c) :: else -> stop(-(reason)) fi

#define NOT_IDLE 1
#define NOT_LEADING 2
#define NOT_HELD 3
#define NOT_NEXT 4
#define LEADS_ALREADY 5
#define NOTHING_SENT 6
#define NOT_EXECUTED 7
#define WAS_EXECUTED 8
#define DID_NOT_CONFLICT 9
#define NOT_WAITING 10
#define TOO_EARLY 11
#define NOT_CAUGHT_UP 12
#define NOT_RAISING 13
#define NOT_IN_ROW 14
#define NOT_WRITTEN 15
#define NOT_SHOWABLE 16
#define READ_TOO_OLD 17
#define READ_TOO_NEW 18
#define NOT_LEASED 19
#define LOOK_NOT_SHOWN 20
#define LEASE_AND_NEWER 21
#define TOO_MANY_LATE 22

#include "fence.pml"

#define TAKE 4 /* a statement, like COMMIT */

/* The kinds of records, see replay.go. Those that take effect at some time between two records have two kinds. */
#define OPENS 1
#define OPENED 2
#define TAKES 3
#define COMMITS 4
#define RAISES_IT 5
#define RESIGNS 6
#define ANSWER 7
#define LEADS 8
#define RESOLVES 9
#define RESOLVED 10
#define LOOKS 11
#define LOOKED 12
#define FINDS 13
#define FOUND 14
#define SHOWS 15
#define SHOWN 16
#define READS 17
#define HAS_READ 18

/* Results of an ANSWER. */
#define WRITTEN 1
#define CONFLICTED 2
#define REFUSED 3
#define UNKNOWN 4

/* The record that is taken, and how many were. */
int pc;
byte kind;
byte w;    /* the node */
Token rec; /* the value that it writes or has found */
int oseq;  /* it replaces the value with this sequence */
int oterm;
int arg;   /* a result, or whether a read was answered within the read lease */
byte room;
bool dead; /* a step was refused */

/* What a node is about to do: OPENS, RESOLVES, FINDS or SHOWS, and its value. 0: it did. */
typedef Pending { byte what; Token val }
Pending pending[NODES];
Token lookVal[NODES];
bool lookOver[NODES]; /* the look was recorded, and its effect has yet to come */
bool sent[NODES];     /* the statement has been sent */

/* One read of each node. */
int floor[NODES];     /* what any client could know when it began */
bool leased[NODES];   /* the read lease was valid at some time since */

c_decl {
\#include "replay.h"
}

#define holds same(rec, node[w].held)
inline observe() {
	need(leaseIsRight(0) && leaseIsRight(1) && leaseIsRight(2), LEASE_AND_NEWER)
}
inline begins(K) { pending[w].what = K; copy(pending[w].val, rec) }
inline send(Op) {
	node[w].s.op = Op;
	node[w].s.oseq = oseq; node[w].s.oterm = oterm;
	copy(node[w].s.val, rec)
}
/* The time for resolving is over. */
inline abandon(n) { resolved(n); node[n].batch = 0 }

inline takes() {
	need(node[w].role == FOLLOW, LEADS_ALREADY);
	need(idle(w), NOT_IDLE);
	need(rec.seq == oseq + 1 && rec.term == oterm + 1 && rec.att == 0, NOT_NEXT);
	send(TAKE);
	sent[w] = true
}

inline commits() {
	need(node[w].role == LEAD, NOT_LEADING);
	need(idle(w), NOT_IDLE);
	need(oseq == node[w].held.seq && oterm == node[w].held.term, NOT_HELD);
	commit(w, rec.rev - node[w].held.rev);
	need(same(rec, node[w].s.val) && rec.rev >= node[w].held.rev, NOT_NEXT);
	sent[w] = true
}

/* resolve has decided on it already. */
inline raises() {
	need(node[w].s.op == RAISE && !sent[w], NOT_RAISING);
	need(oseq == node[w].s.oseq && same(rec, node[w].s.val), NOT_NEXT);
	sent[w] = true
}

inline resigns() {
	if
	:: node[w].role == LEAD -> node[w].role = DRAIN
	:: else
	fi;
	if
	:: node[w].role == DRAIN && canResolve(w) -> abandon(w)
	:: else
	fi;
	need(node[w].role == DRAIN, NOT_LEADING);
	need(idle(w), NOT_IDLE);
	need(oseq == node[w].held.seq && rec.seq == oseq + 1 && rec.term == node[w].held.term && rec.rev == node[w].held.rev, NOT_HELD);
	resign(w)
}

inline answered() {
	need(node[w].s.op != NONE && sent[w], NOTHING_SENT);
	sent[w] = false;
	if
	:: arg == WRITTEN ->
		need(node[w].ans == OK, NOT_EXECUTED);
		if
		:: node[w].s.op == TAKE -> drop(w); taken(w)
		:: node[w].s.op == COMMIT -> committed(w)
		:: node[w].s.op == RAISE -> raised(w)
		fi
	:: arg == CONFLICTED ->
		need(node[w].ans != OK, WAS_EXECUTED);
		if
		:: node[w].s.op == COMMIT -> unknown(w, true) /* of the fence row, or of another row */
		:: else ->
			need(node[w].ans == CONFLICT, DID_NOT_CONFLICT);
			drop(w)
		fi
	:: arg == REFUSED ->
		need(node[w].ans != OK, WAS_EXECUTED);
		if
		:: node[w].s.op == COMMIT -> refuse(w)
		:: else -> drop(w)
		fi
	:: arg == UNKNOWN ->
		if
		:: node[w].s.op == TAKE && node[w].ans == OK -> giveUp(w)
		:: else -> loseAnswer(w)
		fi;
		if
		:: node[w].s.op == COMMIT -> unknown(w, false)
		:: else -> drop(w)
		fi
	fi
}

inline leadsNow() {
	need(node[w].role == WAITING, NOT_WAITING);
	need(holds, NOT_HELD);
	need(node[w].wait == 0, TOO_EARLY);
	need(node[w].front >= node[w].held.rev, NOT_CAUGHT_UP);
	lead(w)
}

/* A node that does not lead has no look. */
inline looks() {
	if
	:: leads(w) && node[w].role != OVER && node[w].look == 0 -> lookUp(w); copy(lookVal[w], rec)
	:: else
	fi
}
inline looked() {
	if
	:: node[w].look == 0
	:: else ->
		need(node[w].look == 2, NOT_IN_ROW);
		if
		:: node[w].lookTerm != node[w].held.term -> lookOver[w] = true
		:: else ->
			need(canFinishLook(w), LOOK_NOT_SHOWN);
			finishLook(w)
		fi
	fi
}

inline showsNow() {
	if
	:: leads(w) ->
		need(node[w].unshown, NOT_WRITTEN);
		need(rec.rev == node[w].held.rev, NOT_HELD)
	:: else
	fi;
	begins(SHOWS)
}

inline reads() { floor[w] = known; leased[w] = (node[w].lease > 0) }
inline hasRead() {
	need(rec.rev >= floor[w], READ_TOO_OLD);
	need(rec.rev <= node[w].front, READ_TOO_NEW);
	need(!arg || leased[w] || node[w].lease > 0, NOT_LEASED);
	floor[w] = 0; leased[w] = false
}

inline take_record() {
	if
	:: kind == OPENS -> begins(OPENS); sent[w] = false; lookOver[w] = false; floor[w] = 0; leased[w] = false
	:: kind == OPENED -> need(!pending[w].what, NOT_IN_ROW)
	:: kind == TAKES -> takes()
	:: kind == COMMITS -> commits()
	:: kind == RAISES_IT -> raises()
	:: kind == RESIGNS -> resigns()
	:: kind == ANSWER -> answered()
	:: kind == LEADS -> leadsNow()
	:: kind == RESOLVES -> begins(RESOLVES)
	:: kind == RESOLVED -> need(!pending[w].what, NOT_IN_ROW)
	:: kind == LOOKS -> looks()
	:: kind == LOOKED -> looked()
	:: kind == FINDS -> begins(FINDS)
	:: kind == FOUND -> need(!pending[w].what, NOT_IN_ROW)
	:: kind == SHOWS -> showsNow()
	:: kind == SHOWN -> need(!pending[w].what, NOT_SHOWABLE)
	:: kind == READS -> reads()
	:: kind == HAS_READ -> hasRead()
	fi
}

/* Time is that of the newest record. */
proctype Records() provided (!dead) {
	do
	:: atomic { c_expr { now.pc < records } -> c_code { fetch(&now); }; take_record(); observe(); pc++ }
	:: atomic { c_expr { now.pc == records } -> c_code { accepted(); } }
	od
}

/* A candidate that will not lead, and a leader that was deposed before it has resolved its commit. Spin tries the processes
 * that start later first. */
proctype GivesUp(byte n) provided (!dead) {
	do
	:: atomic { node[n].role == WAITING -> giveUp(n) }
	:: atomic { node[n].role == OVER && canResolve(n) -> abandon(n) }
	od
}

#define does(n, K) (pending[n].what == K)
inline done(n) { pending[n].what = 0; setToken(pending[n].val, 0, 0, 0, 0); observe() }
#define target pending[n].val.rev

proctype Hidden(byte n) provided (!dead) {
	do
	:: atomic { node[n].s.op == TAKE && node[n].ans == SENT && !matches(node[n].s) -> node[n].ans = CONFLICT }
	:: atomic { node[n].s.op == TAKE && node[n].ans == SENT && matches(node[n].s) && canTake(n) ->
		take(n);
		need(same(node[n].s.val, fence), NOT_NEXT);
		node[n].ans = OK }
	:: atomic { node[n].s.op != TAKE && sent[n] && canExecute(n) -> execute(node[n].s, node[n].ans); observe() }

	:: atomic { does(n, RESOLVES) && canResolve(n) && same(fence, pending[n].val) -> resolve(n); done(n) }
	:: atomic { node[n].look == 1 && same(fence, lookVal[n]) -> lookAnswers(n) }
	:: atomic { lookOver[n] -> lookOver[n] = false; finishLook(n) }
	:: atomic { node[n].role == OVER && idle(n) && !lookOver[n] -> node[n].role = FOLLOW; setToken(node[n].held, 0, 0, 0, 0) }

	:: atomic { does(n, OPENS) -> restart(n); need(node[n].found == target, NOT_IN_ROW); done(n) }
	:: atomic { does(n, FINDS) && fence.rev == target && canFind(n) -> find(n); done(n) }
	:: atomic { does(n, FINDS) && fence.rev == target -> done(n) } /* it remembers another one */

	:: atomic { does(n, SHOWS) && node[n].unshown -> publish(n); done(n) }
	:: atomic { does(n, SHOWS) && canLead(n) && target <= node[n].held.rev -> shows(n, target); done(n) }
	:: atomic { does(n, SHOWS) && follows(n) && known >= target -> shows(n, target); done(n) } /* feed: what some node has shown, also if it was started again since */
	:: atomic { does(n, SHOWS) && canShow(n) && node[n].found == target -> showFound(n); done(n) }
	:: atomic { does(n, SHOWS) && canShow(n) && node[n].found > target -> shows(n, target); done(n) } /* the first part */
	:: atomic { does(n, SHOWS) && !node[n].unshown && node[n].front >= target -> done(n) }
	:: atomic { node[n].found && node[n].found <= node[n].front -> node[n].found = 0; node[n].foundWait = 0 }
	od
}

proctype Late(byte k) provided (!dead) {
	byte res;
	do
	:: atomic { late[k].op != NONE && matches(late[k]) -> execute(late[k], res); res = 0; clear(late[k]); observe() }
	od
}

init {
	byte i;
	atomic {
		c_code { load(); now.fence.seq = first.seq; now.fence.term = first.term; now.fence.rev = first.rev; now.fence.att = first.att; };
		run Records();
		for (i : 0 .. NODES - 1) { run GivesUp(i) }
		i = 0;
		for (i : 0 .. NODES - 1) { run Hidden(i) }
		i = 0;
		for (i : 0 .. LATE - 1) { run Late(i) }
		i = 0
	}
}
