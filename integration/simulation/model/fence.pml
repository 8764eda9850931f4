/*
 * The fence row: commits, unknown outcomes, terms, the read lease, takeover, followers.
 * docs/model.md explains the model, and has the table of its steps and the code that they stand for.
 *
 * A step is one inline below. A process takes its steps in any order and stops for any time between two of
 * them, so a paused process, a slow database and a delayed message need no steps of their own.
 *
 * With REPLAY there are no processes: replay.pml takes the steps of a run that was recorded.
 */

#ifndef NODES
#define NODES 2
#endif
#ifndef LEADERS
#define LEADERS NODES /* the first nodes may lead; the others only follow */
#endif
#ifndef TERMS
#define TERMS 3 /* leaderships */
#endif
#ifndef BATCHES
#define BATCHES 2 /* attempts to commit */
#endif
#ifndef RAISES
#define RAISES 2 /* raises of the attempt number in one term */
#endif
#ifndef LATE
#define LATE 1 /* statements on their way that no process waits for */
#endif

/* The durations of server/timing, in ticks: two to three, as ReadLease to TakeoverWait. */
#ifndef REPLAY
#define LEASE 2
/* Without this safeguard: the leader before answers from memory without the new leader's commits, if its clock is
   slow. */
#ifdef SHORT_NEW_LEADER_WAIT
#define WAIT 2
#else
#define WAIT 3
#endif
#endif

#ifdef REPLAY
#define number int
#define reach(k) skip
#else
#define number byte
/* reach(k) marks a place that must be reachable. Spin lists the statements that it did not reach. */
#define reach(k) assert(k)
#endif

#define bit(b) (1 << (b))
#define max(a, b) ((a) > (b) -> (a) : (b))

/* coder.FenceToken. RESIGNED is the attempt number of a leader that has stopped. */
#define RESIGNED 255 /* far more than the raises of one term */
typedef Token { number seq; number term; number rev; number att }
#define same(A, B) (A.seq == B.seq && A.term == B.term && A.rev == B.rev && A.att == B.att)
inline copy(A, B) { A.seq = B.seq; A.term = B.term; A.rev = B.rev; A.att = B.att }
inline setToken(A, Seq, Term, Rev, Att) { A.seq = Seq; A.term = Term; A.rev = Rev; A.att = Att }

/* A statement that swaps the fence row: op, what it expects, what it writes, and the batch that it commits. */
#define NONE 0
#define COMMIT 1
#define RAISE 2
#define RESIGN 3
typedef Stmt { byte op; number oseq; number oterm; Token val; byte batch }
inline clear(X) { X.op = NONE; X.oseq = 0; X.oterm = 0; setToken(X.val, 0, 0, 0, 0); X.batch = 0 }

/* Roles. From LEAD on a node has a leadership. */
#define FOLLOW 0
#define TAKING 1  /* its change of the fence row is on its way */
#define WAITING 2 /* it waits until the read lease of its predecessor is over */
#define LEAD 3
#define DRAIN 4   /* it was asked to stop, and finishes its commit */
#define OVER 5    /* a look found a later term: it finishes its commit */

/* A follower's question to the leader: it waits, has its answer, or shares the look of node ask - IN_LOOK. */
#define ASKED 1
#define ANSWERED 2
#define IN_LOOK 3

#define SENT 0
#define OK 1
#define CONFLICT 2

typedef Node {
	byte role;
	Token held;      /* fence.Holder.held */
	number front;    /* the newest revision that the node shows */
	Stmt s;          /* the statement for whose answer it waits */
	byte ans;        /* SENT, or the answer that is on its way back */
	number age;      /* ticks since s was sent, on the clock of the read lease */
	bool fresh;      /* TAKING: the predecessor has resigned */
	bool resolving;   /* the outcome of a commit is unknown */
	bool definite;   /* resolving: the commit certainly did not take effect */
	Token want;      /* what that commit would have written */
	byte batch;      /* the batch to be resolved, or to be shown and acknowledged */
	bool unshown;
	number lease;    /* ticks for which the read lease is still valid */
	number wait;     /* ticks until WAITING ends */
	byte look;       /* a look at the fence row: 0 none, 1 sent, 2 answered */
	number lookAge;
	number lookTerm;
	number lookRev;
	number lookFloor; /* known when the look began */
	number found;    /* a revision that was found in the table and not reported by the leader; 0: none */
	number foundWait; /* ticks until it may be shown */
	byte ask;        /* a linearizable read of a follower, see ASKED; 0: none */
	number askFloor; /* known when the read began */
	number position; /* the answer */
	byte lag;        /* the clock of the read lease may be slow: it may omit one tick in three */
}
Node node[NODES];

/* The database. */
Token fence;
Stmt late[LATE];

/* What is only observed: sets of batches, the newest revision that any client can know. */
number batches;
number landed;
number refused; /* reported as not written */
number known;

byte m; /* of loops in inlines */

#define leads(n) (node[n].role >= LEAD)
#define idle(n) (node[n].s.op == NONE && !node[n].resolving && !node[n].unshown)

inline shows(n, revision) {
	if
	:: node[n].front < revision -> node[n].front = revision
	:: else
	fi;
	known = max(known, node[n].front)
}

/* A node with a valid read lease shows everything that any client can know: reads from memory are linearizable. */
#define leaseIsRight(n) (node[n].lease == 0 || node[n].front >= known)

/* ---- the database ---- */

#ifdef REPLAY
#include "replay_database.pml"
#else
byte content[BATCHES + 1]; /* the batch that wrote a revision */
inline writes(X) {
	assert(X.val.rev == fence.rev + 1); /* contiguous */
	assert(content[X.val.rev] == 0);    /* never changed */
	content[X.val.rev] = X.batch
}
inline nextBatch() { batches++ }

/* A statement may take effect later, or never. */
inline postpone(X) {
	for (m : 0 .. LATE - 1) {
		if
		:: late[m].op == NONE ->
			late[m].op = X.op; late[m].oseq = X.oseq; late[m].oterm = X.oterm;
			copy(late[m].val, X.val); late[m].batch = X.batch;
			break
		:: else
		fi
	}
}
#endif

/* Without this safeguard: a deposed leader's commit replaces the fence row. */
#ifdef NO_FENCE_CAS
#define matches(x) (x.op == COMMIT || fence.seq == x.oseq && fence.term == x.oterm)
#elif defined(NO_TERM)
#define matches(x) (fence.rev == x.val.rev - (x.op == COMMIT && x.val.rev > 0 -> 1 : 0) || fence.seq == x.oseq)
#else
#define matches(x) (fence.seq == x.oseq && fence.term == x.oterm)
#endif

/* execute is the atomic step of the database: compare and swap. */
inline execute(X, res) {
	if
	:: matches(X) ->
		res = OK;
		if
		:: X.op == COMMIT ->
			assert(!(landed & bit(X.batch)));  /* nothing is applied twice */
			assert(!(refused & bit(X.batch))); /* nothing is applied that was reported as not written */
			landed = landed | bit(X.batch);
			if
			:: X.val.rev != fence.rev -> writes(X)
			:: else
			fi
		:: else
		fi;
		assert(X.val.term >= fence.term && X.val.seq > fence.seq); /* a value never returns */
		copy(fence, X.val)
	:: else -> res = CONFLICT
	fi
}

/* A statement of a node takes effect. Its answer is on its way. */
#define canExecute(n) (node[n].s.op != NONE && node[n].ans == SENT)

/* The node does not get the answer. */
inline loseAnswer(n) {
	if
	:: node[n].ans == SENT -> postpone(node[n].s)
	:: true /* or the statement was lost as well */
	fi
}

inline drop(n) { clear(node[n].s); node[n].ans = SENT; node[n].age = 0 }

inline dropLook(n) {
	if
	:: node[n].look ->
		node[n].look = 0; node[n].lookAge = 0; node[n].lookTerm = 0; node[n].lookRev = 0; node[n].lookFloor = 0;
		for (m : 0 .. NODES - 1) {
			if
			:: node[m].ask == IN_LOOK + n -> node[m].ask = ASKED
			:: else
			fi
		}
	:: else
	fi
}

/* leader.End: nothing is answered from memory any more. A commit under way is finished. */
inline end(n) {
	node[n].lease = 0;
	dropLook(n);
	if
	:: idle(n) -> node[n].role = FOLLOW
	:: else -> node[n].role = OVER
	fi
}

/* ---- taking over ---- */

/*
 * fence.Acquire. It reads the fence row, and swaps it if it is still the same: so both are one step here. A swap
 * that takes effect when no process waits for it any more is a step whose answer is lost.
 */
#ifdef REPLAY
#define mayBeFirst(n) true
#else
#define mayBeFirst(n) (n == 0) /* nodes are equal */
#endif
#define canTake(n) (n < LEADERS && node[n].role == FOLLOW && fence.term < TERMS && (fence.term > 0 || mayBeFirst(n)))
inline take(n) {
	for (m : 0 .. LATE - 1) {
		if
		:: late[m].op == COMMIT -> reach(1)
		:: else
		fi
	}
	if
	:: fence.att == RESIGNED -> node[n].fresh = true
	:: else
	fi;
/* Without this safeguard: a leader does not notice its successor, and both commit. */
#ifdef NO_TERM
	setToken(node[n].held, fence.seq + 1, fence.term, fence.rev, 0);
#else
	setToken(node[n].held, fence.seq + 1, fence.term + 1, fence.rev, 0);
#endif
	copy(fence, node[n].held);
	node[n].role = TAKING
}

/* It gets the answer, and begins to wait. */
inline taken(n) {
	node[n].role = WAITING;
/* Without this safeguard: the new leader shows a commit that the leader before does not show yet. */
#ifdef CATCH_UP_BEFORE_WAIT
	shows(n, node[n].held.rev);
#endif
/* Without this safeguard: the leader before answers from memory without the new leader's commits. */
#ifndef NO_NEW_LEADER_WAIT
	if
	:: node[n].fresh -> reach(2)
	:: else -> node[n].wait = WAIT
	fi;
#endif
	node[n].fresh = false
}

/* It does not get the answer, or ends before it leads. */
inline giveUp(n) {
	node[n].role = FOLLOW; node[n].fresh = false; node[n].wait = 0;
	setToken(node[n].held, 0, 0, 0, 0)
}

/* backend.takeOver ends: catch up, then lead. */
#define canLead(n) (node[n].role == WAITING && node[n].wait == 0)
inline lead(n) {
	shows(n, node[n].held.rev);
	node[n].found = 0; node[n].foundWait = 0;
	node[n].role = LEAD
}

/* ---- commits ---- */

#define canCommit(n) (node[n].role == LEAD && idle(n) && batches < BATCHES)
/* fence.Holder.Commit sends. revisions is 0 for a batch that writes no key, such as a checkpoint of a lease. */
inline commit(n, revisions) {
	nextBatch();
	node[n].s.op = COMMIT;
	node[n].s.oseq = node[n].held.seq; node[n].s.oterm = node[n].held.term;
	setToken(node[n].s.val, node[n].held.seq + 1, node[n].held.term, node[n].held.rev + revisions, node[n].held.att);
	node[n].s.batch = batches;
	node[n].age = 0
}

inline extend(n, elapsed) {
/* Without this safeguard: the leader before answers from memory without the new leader's commits, if the answer of
   the database took long. */
#ifdef LEASE_FROM_END
	node[n].lease = LEASE
#else
	node[n].lease = max(node[n].lease, LEASE - elapsed)
#endif
}

/* The outcome has to be resolved. */
inline unknown(n, certainly) {
	copy(node[n].want, node[n].s.val);
	node[n].batch = node[n].s.batch;
	node[n].resolving = true;
	node[n].definite = certainly;
	drop(n)
}

inline resolved(n) {
	node[n].resolving = false; node[n].definite = false;
	setToken(node[n].want, 0, 0, 0, 0)
}

/* The answer: written, or a conflict, which has to be resolved as well. */
inline committed(n) {
	if
	:: node[n].ans == OK ->
		copy(node[n].held, node[n].s.val);
		node[n].batch = node[n].s.batch;
		node[n].unshown = true;
		if
		:: node[n].role != OVER -> extend(n, node[n].age)
		:: else
		fi;
		drop(n)
	:: else -> unknown(n, true)
	fi
}

/* The database answers with an error that says that nothing was written, and not because a row was not as expected. */
inline refuse(n) {
	refused = refused | bit(node[n].s.batch);
	drop(n)
}

/* fence.Holder.tryResolve looks at the fence row, and sends a raise if the commit did not take effect. */
#define mine(n) (fence.term == node[n].held.term && fence.rev == node[n].held.rev && \
	fence.seq - node[n].held.seq == fence.att - node[n].held.att)
#define canResolve(n) (node[n].resolving && node[n].s.op == NONE)
inline resolve(n) {
	if
/* Without this safeguard: a commit of unknown outcome is acknowledged and not in the table. */
#ifdef NO_RESOLVE
	:: true ->
		copy(node[n].held, node[n].want);
		resolved(n);
		node[n].unshown = true
#else
	:: same(fence, node[n].want) ->
		copy(node[n].held, node[n].want);
		resolved(n);
		node[n].unshown = true;
		reach(3)
	:: !same(fence, node[n].want) && fence.term > node[n].held.term ->
		if
		:: node[n].definite -> refused = refused | bit(node[n].batch)
		:: else -> reach(4) /* the client learns that the outcome is unknown */
		fi;
		resolved(n);
		node[n].batch = 0;
		end(n)
	:: !same(fence, node[n].want) && mine(n) ->
/* Without this safeguard: a late commit takes effect after it was reported as not written. */
#ifdef NO_RAISE
		resolved(n);
		refused = refused | bit(node[n].batch);
		node[n].batch = 0
#else
		if
		:: fence.att < RAISES ->
			node[n].s.op = RAISE;
			node[n].s.oseq = fence.seq; node[n].s.oterm = fence.term;
/* Without this safeguard: a raise has the value of the commit, so the two look the same. */
#ifdef NO_ATTEMPT_RAISE
			setToken(node[n].s.val, fence.seq + 1, fence.term, fence.rev, fence.att)
#else
			setToken(node[n].s.val, fence.seq + 1, fence.term, fence.rev, fence.att + 1)
#endif
		:: else
		fi
#endif
	:: else -> assert(false) /* only if the database lost commits: see loss.pml */
#endif
	fi
}

inline raised(n) {
	if
	:: node[n].ans == OK ->
		copy(node[n].held, node[n].s.val);
		refused = refused | bit(node[n].batch);
		resolved(n);
		node[n].batch = 0;
		reach(5)
	:: else
	fi;
	drop(n)
}

/* backend.leader.Publish: the revision becomes visible, then the request is acknowledged. */
inline publish(n) {
	assert(landed & bit(node[n].batch)); /* what is acknowledged is durable */
	shows(n, node[n].held.rev);
	node[n].unshown = false;
	node[n].batch = 0
}

/* ---- the end of a leadership ---- */

/*
 * leader.resign: the read lease ends, then the fence row says so. The answer makes no difference. Until then the
 * read lease still serves calls that have begun.
 */
#define canResign(n) (node[n].role == DRAIN && idle(n))
inline resign(n) {
	dropLook(n);
	node[n].s.op = RESIGN;
	node[n].s.oseq = node[n].held.seq; node[n].s.oterm = node[n].held.term;
	setToken(node[n].s.val, node[n].held.seq + 1, node[n].held.term, node[n].held.rev, RESIGNED);
	postpone(node[n].s);
	drop(n);
/* Without this safeguard: the leader before answers from memory without the new leader's commits, after its
   resignation. */
#ifndef RESIGN_BEFORE_STOP
	node[n].lease = 0;
	node[n].role = FOLLOW;
	setToken(node[n].held, 0, 0, 0, 0)
#else
	node[n].role = OVER
#endif
}

/* ---- reads ---- */

/* fence.Authority.check */
inline lookUp(n) {
	node[n].look = 1;
	node[n].lookAge = 0;
	node[n].lookFloor = known;
	for (m : 0 .. NODES - 1) {
		if
		:: node[m].ask == ASKED -> node[m].ask = IN_LOOK + n
		:: else
		fi
	}
}
inline lookAnswers(n) {
	node[n].look = 2;
	node[n].lookTerm = fence.term;
	node[n].lookRev = fence.rev
}
/* Without this safeguard: a look renews the read lease while the leader does not show its commit, and a follower
   does. */
#ifdef LOOK_DOES_NOT_AWAIT
#define canFinishLook(n) (node[n].look == 2)
#else
#define canFinishLook(n) (node[n].look == 2 && (node[n].lookTerm != node[n].held.term || node[n].front >= node[n].lookRev))
#endif
inline finishLook(n) {
	if
#ifndef NO_TERM
	:: node[n].lookTerm != node[n].held.term -> end(n); reach(6)
#endif
	:: else ->
		assert(node[n].front >= node[n].lookFloor); /* linearizable */
		extend(n, node[n].lookAge);
		for (m : 0 .. NODES - 1) {
			if
			:: node[m].ask == IN_LOOK + n -> node[m].ask = ANSWERED; node[m].position = node[n].front
			:: else
			fi
		}
		dropLook(n)
	fi
}

/* backend.CatchUp finds a commit in the table; visibility decides when it is shown. */
#if LEADERS < NODES
#define follows(n) (n >= LEADERS)
#else
#define follows(n) (node[n].role == FOLLOW)
#endif
#define canFind(n) (follows(n) && node[n].found == 0 && fence.rev > node[n].front)
inline find(n) {
	node[n].found = fence.rev;
/* Without this safeguard: a follower shows a commit that the leader does not show yet. */
#ifdef FOLLOWER_SHOWS_AT_ONCE
	node[n].foundWait = 0
#else
	node[n].foundWait = WAIT
#endif
}
#define canShow(n) (follows(n) && node[n].found && node[n].foundWait == 0)
inline showFound(n) {
	if
	:: node[n].found > known -> reach(7)
	:: else
	fi;
	shows(n, node[n].found);
	node[n].found = 0
}

/* A message of the feed: a node shows what another node has shown. */
#define ahead(n) (follows(n) && shownElsewhere(n))
#if NODES == 2
#define shownElsewhere(n) (node[1 - n].front > node[n].front)
#else
#define shownElsewhere(n) (node[0].front > node[n].front || node[1].front > node[n].front || node[2].front > node[n].front)
#endif
inline feed(n) { shows(n, node[n].front + 1) }

/* A linearizable read of a follower (backend.askFrontier). */
#define canAnswer(m, n) (node[n].ask == ASKED && leads(m) && node[m].lease > 0)
inline answer(m, n) { node[n].ask = ANSWERED; node[n].position = node[m].front }
/* Without this safeguard: a linearizable read of a follower misses an acknowledged commit. */
#ifdef FOLLOWER_DOES_NOT_WAIT
#define canRead(n) (node[n].ask == ANSWERED)
#else
#define canRead(n) (node[n].ask == ANSWERED && node[n].front >= node[n].position)
#endif
inline read(n) {
	assert(node[n].front >= node[n].askFloor); /* linearizable */
	if
	:: node[n].askFloor > 0 -> reach(8)
	:: else
	fi;
	node[n].ask = 0; node[n].askFloor = 0; node[n].position = 0
}

/* ---- failures ---- */

/* The process is killed and started again. What it found in the table it may not show at once (OpenReplica). */
inline restart(n) {
	if
	:: node[n].s.op != NONE -> loseAnswer(n)
	:: else
	fi;
	dropLook(n);
	drop(n);
	node[n].role = FOLLOW;
	setToken(node[n].held, 0, 0, 0, 0);
	node[n].front = 0; node[n].fresh = false;
	resolved(n);
	node[n].batch = 0; node[n].unshown = false; node[n].lease = 0; node[n].wait = 0;
	node[n].ask = 0; node[n].askFloor = 0; node[n].position = 0;
	node[n].found = 0; node[n].foundWait = 0;
#ifdef FOLLOWERS
	if
	:: fence.rev > 0 -> find(n)
	:: else
	fi
#else
	node[n].front = fence.rev
#endif
}

/* ---- processes ---- */

#ifndef REPLAY

proctype Process(byte n) {
	do
	:: atomic { canTake(n) -> take(n) }
	:: atomic { node[n].role == TAKING -> taken(n) }
	:: atomic { node[n].role == TAKING || node[n].role == WAITING -> giveUp(n) }
	:: atomic { canLead(n) -> lead(n) }

	:: atomic { canCommit(n) -> commit(n, 1) }
	:: atomic { canCommit(n) -> commit(n, 0) }
	:: atomic { canExecute(n) -> execute(node[n].s, node[n].ans) }
	:: atomic { node[n].s.op == COMMIT && node[n].ans != SENT -> committed(n) }
	:: atomic { node[n].s.op == COMMIT && node[n].ans != CONFLICT -> loseAnswer(n); unknown(n, false) }
	:: atomic { node[n].s.op == COMMIT && node[n].ans == SENT -> node[n].ans = CONFLICT } /* of another row */
	:: atomic { node[n].s.op == COMMIT && node[n].ans == SENT -> refuse(n) }
	:: atomic { canResolve(n) -> resolve(n) }
	:: atomic { node[n].s.op == RAISE && node[n].ans != SENT -> raised(n) }
	:: atomic { node[n].s.op == RAISE && node[n].ans != CONFLICT -> loseAnswer(n); drop(n) }
	:: atomic { node[n].unshown -> publish(n) }

	:: atomic { node[n].role == LEAD -> node[n].role = DRAIN }
	:: atomic { node[n].role >= DRAIN && canResolve(n) -> resolved(n); node[n].batch = 0 } /* out of time */
	:: atomic { canResign(n) -> resign(n) }
#ifdef RESIGN_BEFORE_STOP
	:: atomic { node[n].role == OVER && idle(n) -> node[n].lease = 0; node[n].role = FOLLOW; setToken(node[n].held, 0, 0, 0, 0) }
#else
	:: atomic { node[n].role == OVER && idle(n) -> node[n].role = FOLLOW; setToken(node[n].held, 0, 0, 0, 0) }
#endif
#ifdef RESTARTS
	:: atomic { n >= NODES - RESTARTS -> restart(n) }
#endif
#ifdef TIMED
	:: atomic { leads(n) && node[n].role != OVER && !node[n].look -> lookUp(n) }
	:: atomic { node[n].look == 1 -> lookAnswers(n) }
	:: atomic { canFinishLook(n) -> finishLook(n) }
	:: atomic { node[n].look -> dropLook(n) }
#endif
#ifdef FOLLOWERS
	:: atomic { canFind(n) -> find(n) }
	:: atomic { canShow(n) -> showFound(n) }
	:: atomic { ahead(n) -> feed(n) }
	:: atomic { follows(n) && !node[n].ask -> node[n].ask = ASKED; node[n].askFloor = known }
	:: atomic { canRead(n) -> read(n) }
#endif
	od
}

/* Statements that no process waits for take effect late, or never. */
proctype Database(byte k) {
	byte res;
	do
	:: atomic {
		late[k].op != NONE ->
		execute(late[k], res);
		if
		:: res == OK && late[k].op == COMMIT -> reach(9)
		:: res == OK && late[k].op == RESIGN -> reach(10)
		:: else
		fi;
		res = 0;
#ifdef DUPLICATES
		if
		:: true
		:: clear(late[k])
		fi
#else
		clear(late[k])
#endif
	}
	od
}

#ifdef FOLLOWERS
/* Questions of followers that the leader answers within its read lease. */
proctype Network() {
	byte a, b;
	do
	:: atomic {
		select(a : 0 .. NODES - 1);
		select(b : 0 .. NODES - 1);
		if
		:: a != b && canAnswer(a, b) -> answer(a, b)
		:: else
		fi;
		a = 0; b = 0
	}
	od
}
#endif

#ifdef TIMED
inline count(n) {
	if
	:: node[n].lease -> node[n].lease--
	:: else
	fi;
	if
	:: node[n].s.op == COMMIT && node[n].age < LEASE -> node[n].age++
	:: else
	fi;
	if
	:: node[n].look && node[n].lookAge < LEASE -> node[n].lookAge++
	:: else
	fi;
	if
	:: node[n].lag -> node[n].lag--
	:: else
	fi
}

/* Time passes. The clock of a read lease may be slow by half, as the relation of the two durations allows. */
proctype Time() {
	byte i;
	do
	:: atomic {
		for (i : 0 .. NODES - 1) {
			if
			:: count(i)
/* Without this safeguard: the leader before answers from memory without the new leader's commits, after its machine
   was suspended. */
#ifdef LEASE_CLOCK_STOPS_IN_SUSPENSION
			:: true
#elif defined(DRIFT)
			:: node[i].lag == 0 && node[i].lease + node[i].look + node[i].s.op > 0 -> node[i].lag = 2
#endif
			fi;
			if
			:: node[i].wait -> node[i].wait--
			:: else
			fi;
			if
			:: node[i].foundWait -> node[i].foundWait--
			:: else
			fi
		}
		i = 0;
	}
	od
}
#endif

/* The invariant of every state. */
proctype Invariant() {
	byte i;
	atomic {
		(!leaseIsRight(0) || LEADERS > 1 && !leaseIsRight(LEADERS - 1)) -> assert(false)
	}
}

init {
	byte i;
	atomic {
		setToken(fence, 1, 0, 0, RESIGNED);
		for (i : 0 .. NODES - 1) { run Process(i) }
		i = 0;
		for (i : 0 .. LATE - 1) { run Database(i) }
		i = 0;
#ifdef FOLLOWERS
		run Network();
#endif
#ifdef TIMED
		run Time();
		run Invariant()
#endif
	}
}
#endif
