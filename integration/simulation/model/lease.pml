/*
 * A lease of a client: grant, renewals, checkpoints, revocation, new leaders. No lease ends early.
 * docs/model.md explains the model, and has the table of its steps and the code that they stand for.
 *
 * What fence.pml checks is assumed here: only a commit of the newest term takes effect, its outcome becomes
 * known, and VerifyLeader succeeds only if no later leader serves.
 */

#ifndef TERMS
#define TERMS 3
#endif
#ifndef TTL
#define TTL 2 /* seconds */
#endif
#define SECOND 2 /* ticks; the table holds whole seconds */
#define NODES 2

#define reach(k) assert(k)

#define FOLLOW 0
#define WAITING 1 /* it changed the fence row, and has read the rows of leases */
#define LEAD 2

/* Commands of the pipeline; one commit at a time. */
#define GRANT 1
#define CHECKPOINT 2
#define RENEW 3 /* a checkpoint that writes the full TTL */
#define REVOKE 4

typedef Node {
	byte role;
	byte term;
	bool exists;    /* the lessor has the lease */
	byte expiry;    /* ticks until its time is up */
	byte persisted; /* seconds */
	bool due;       /* a checkpoint waits for the sequencer */
/* Without this safeguard: a checkpoint does not include a renewal that needed no commit. */
#ifdef CHECKPOINT_COMPUTED_WHEN_DUE
	byte early;
#endif
	bool renewal;   /* a renewal waits for the sequencer */
	byte op;        /* the commit on its way; 0: none */
	bool answered;
	byte value;     /* the time that it writes, in seconds */
	byte call;      /* KeepAlive: 0 none, 1 renewed, 2 confirmed, 3 waits for a commit */
	bool persist;   /* of the call */
}
Node node[NODES];

/* The database: the term in the fence row, and the row of the lease. */
byte term;
bool row;
byte rowTime; /* seconds */

byte served;  /* the newest term that has served */

bool granted; /* there is one grant */
byte promised; /* ticks for which the lease must live yet, because an answer said so */

#define ticks(seconds) ((seconds) * SECOND)
#define over(n) (node[n].expiry == 0)
/* fence.Authority.VerifyLeader, as fence.pml has it. */
/* Without this safeguard: a deposed leader acknowledges a renewal. */
#ifdef NO_CONFIRM
#define confirmed(n) (node[n].role == LEAD)
#else
#define confirmed(n) (node[n].role == LEAD && node[n].term == served)
#endif

/* lease.remaining */
inline remaining(n, result) {
/* Without this safeguard: a checkpoint holds less than was promised. */
#ifdef ROUND_DOWN
	result = node[n].expiry / SECOND;
#else
	result = (node[n].expiry + SECOND - 1) / SECOND;
#endif
	if
	:: result == 0 -> result = 1
	:: result > TTL -> result = TTL
	:: else
	fi
}

inline lower(n, seconds) {
	if
	:: seconds < node[n].persisted -> node[n].persisted = seconds
	:: else
	fi
}

inline promising(length) {
	if
	:: length > promised -> promised = length
	:: else
	fi
}

inline forget(n) {
	node[n].role = FOLLOW; node[n].term = 0;
	node[n].exists = false; node[n].expiry = 0; node[n].persisted = 0; node[n].due = false;
	node[n].renewal = false; node[n].op = 0; node[n].answered = false; node[n].value = 0;
	node[n].call = 0; node[n].persist = false
}

inline hangUp(n) { node[n].call = 0; node[n].persist = false; node[n].renewal = false }

/* The answer promises the TTL from the renewal on: what is left of it. Only one call at a time renews. */
inline acknowledge(n) { promising(node[n].expiry); hangUp(n) }

/* ---- leaders ---- */

inline load(n) {
	node[n].exists = row;
	if
	:: row -> node[n].persisted = rowTime
	:: else
	fi;
/* Without this safeguard: the leader before renews a lease whose clock runs at its successor. */
#ifdef CLOCKS_START_AT_LOAD
	node[n].expiry = ticks(node[n].persisted)
#endif
}

/* fence.Acquire, then Lessor.Load. Processes take turns: one that leads again is as good as another. */
#define canTake(n) (node[n].role == FOLLOW && term < TERMS && term % 2 == n)
inline take(n) {
/* Without this safeguard: a lease is restored as it was before its last renewal. */
#ifndef LOAD_BEFORE_TAKE
	load(n);
#endif
	term++;
	node[n].term = term;
	node[n].role = WAITING
}

/* Lessor.Start: when the leader before can no longer acknowledge a renewal. Without timing.LeaseGrace. */
inline start(n) {
#ifndef CLOCKS_START_AT_LOAD
	node[n].expiry = ticks(node[n].persisted);
#endif
	node[n].role = LEAD;
	served = node[n].term;
	if
	:: node[n].exists && promised > 0 -> reach(1)
	:: else
	fi
}

/* ---- commands ---- */

#define free(n) (node[n].role == LEAD && node[n].op == 0)

/* grantCommand */
inline grant(n) {
	granted = true; node[n].op = GRANT; node[n].value = TTL;
	node[n].expiry = ticks(TTL) /* the answer promises the TTL from here on */
}

/* Lessor.takeDue: a checkpoint is due. The model does not say when: at any time. */
inline becomesDue(n, seconds) {
	node[n].due = true;
	remaining(n, seconds);
#ifdef CHECKPOINT_COMPUTED_WHEN_DUE
	node[n].early = seconds;
#endif
	lower(n, seconds);
	seconds = 0
}

/* checkpointCommand.Evaluate: Lessor.toWrite lowers persisted with the time that it computes. */
inline checkpoint(n, seconds) {
	node[n].due = false;
	node[n].op = CHECKPOINT;
#ifdef CHECKPOINT_COMPUTED_WHEN_DUE
	node[n].value = node[n].early; node[n].early = 0
#else
	remaining(n, seconds);
	node[n].value = seconds;
/* Without this safeguard: a renewal after a checkpoint is unknown to the next leader, while the checkpoint is on its
   way. */
#ifndef PERSISTED_NOT_LOWERED
	lower(n, seconds);
#endif
	seconds = 0
#endif
}

inline renewedCheckpoint(n) { node[n].renewal = false; node[n].op = RENEW; node[n].value = TTL }

/* revokeCommand, of a lease whose time is up */
inline revoke(n) { node[n].op = REVOKE; node[n].value = 0 }

/* The commit takes effect, if its term is the newest. */
inline takesEffect(n) {
	if
/* Without this safeguard: a deposed leader revokes a renewed lease. */
#ifdef NO_FENCE_CAS
	:: true ->
#else
	:: node[n].term == term ->
#endif
		node[n].answered = true;
		if
		:: node[n].op == REVOKE ->
			assert(promised == 0); /* no lease ends early */
			if
			:: term > 1 -> reach(2)
			:: else
			fi;
			row = false; rowTime = 0
		:: node[n].op == GRANT || row && node[n].op != REVOKE -> row = true; rowTime = node[n].value
		:: else
		fi
	:: else -> forget(n) /* deposed */
	fi
}

/* Tx.OnCommit: Lessor.add, written, remove */
inline done(n) {
	if
	:: node[n].op == GRANT ->
		promising(node[n].expiry);
		node[n].exists = true; node[n].persisted = TTL; node[n].expiry = ticks(TTL)
	:: node[n].op == REVOKE ->
		node[n].exists = false; node[n].expiry = 0; node[n].persisted = 0; node[n].due = false
	:: else ->
		if
		:: node[n].exists -> node[n].persisted = node[n].value
		:: else
		fi;
		if
		:: node[n].op == RENEW && node[n].call == 3 -> acknowledge(n); reach(3)
		:: else
		fi
	fi;
	node[n].op = 0; node[n].answered = false; node[n].value = 0
}

/* The commit failed, and never takes effect. The caller of a renewal gets an error. */
inline failed(n) {
	if
	:: node[n].op == RENEW -> hangUp(n)
	:: node[n].op == GRANT -> granted = false
	:: else
	fi;
	node[n].op = 0; node[n].value = 0
}

/* ---- renewals ---- */

/* Lessor.renew */
/* Without this safeguard: a renewal is acknowledged while the revocation is on its way. */
#ifdef EXPIRED_LEASE_IS_RENEWED
#define renewable(n) (node[n].role == LEAD && node[n].call == 0 && node[n].exists)
#else
#define renewable(n) (node[n].role == LEAD && node[n].call == 0 && node[n].exists && !over(n))
#endif
inline renew(n) {
	node[n].expiry = ticks(TTL);
	node[n].call = 1;
	node[n].persist = (node[n].persisted < TTL)
}

inline confirm(n) {
	if
/* Without this safeguard: a renewal after a checkpoint is unknown to the next leader. */
#ifndef RENEWAL_WITHOUT_COMMIT
	:: node[n].persist -> node[n].call = 3; node[n].renewal = true
#endif
	:: else ->
		if
		:: node[n].term < term -> reach(4) /* a successor waits already */
		:: else
		fi;
		acknowledge(n)
	fi
}

/* The clock of a lease. */
#ifdef CLOCKS_START_AT_LOAD
#define STARTED WAITING
#else
#define STARTED LEAD
#endif
inline running(n) {
	if
	:: node[n].role >= STARTED && node[n].expiry > 0 -> node[n].expiry--
	:: else
	fi
}

/* ---- processes ---- */

proctype Process(byte n) {
	byte x;
	do
	:: atomic { canTake(n) -> take(n) }
#ifdef LOAD_BEFORE_TAKE
	:: atomic { node[n].role == FOLLOW && row && !node[n].exists -> load(n) }
#endif
	:: atomic { node[n].role == WAITING && node[n].term == term -> start(n) }
	:: atomic { node[n].role != FOLLOW -> forget(n) } /* it ends, for any reason */

	:: atomic { free(n) && !granted -> grant(n) }
	:: atomic { node[n].role == LEAD && node[n].exists && !node[n].due && !over(n) -> becomesDue(n, x) }
	:: atomic { free(n) && node[n].exists && node[n].due -> checkpoint(n, x) }
	:: atomic { free(n) && node[n].exists && node[n].renewal -> renewedCheckpoint(n) }
	:: atomic { free(n) && node[n].exists && over(n) && !node[n].renewal -> revoke(n) }
	:: atomic { node[n].op && !node[n].answered -> takesEffect(n) }
	:: atomic { node[n].op && !node[n].answered -> failed(n) }
	:: atomic { node[n].answered -> done(n) }

	:: atomic { renewable(n) -> renew(n) }
	:: atomic { node[n].call == 1 && confirmed(n) -> confirm(n) }
	:: atomic { node[n].call == 1 -> hangUp(n) }
	od
}

/* Time passes. A slow clock, as in suspension, only prolongs what it measures, so all clocks are equal here. */
proctype Time() {
	do
	:: atomic { running(0); running(1); promised = (promised > 0 -> promised - 1 : 0) }
	od
}

init {
	byte i;
	atomic {
		for (i : 0 .. NODES - 1) { run Process(i) }
		i = 0;
		run Time()
	}
}
