/*
 * The election: polls, challenges, the lock row. docs/model.md explains the model.
 *
 * A tick is timing.FastPoll. A process that runs polls once in a tick while it can read the database; a leader none of
 * whose feeds has ended polls once in POLL ticks only. A member that does not hear the leader writes a challenge into the
 * lock row, and takes the lock if the challenge stays unanswered until a deadline, some of the leader's intervals later. The
 * deadline is short if the member had a feed of this leadership, whose end the leader notices. Both sides notice the end of
 * a feed within a tick.
 */

#ifndef GRANTS
#define GRANTS 2
#endif
#define NODES 2
#define POLL 2            /* ticks between polls of a leader whose feeds work, timing.Poll */
#define FAST 2            /* deadline in ticks, after the end of a feed: less than the three intervals of the code */
#define SLOW (2 * POLL)   /* deadline of a member that had no feed, or hears nothing by it */
#define RUNS (POLL + 1)   /* a leader that has run, and could write, for so many ticks has answered */

/* Without this safeguard: a leader is deposed because the database was away. */
#ifdef CLOCK_COUNTS_OUTAGE
#define GAP (SLOW + 1)
#else
#define GAP (SLOW / 2)
#endif

#define reach(k) assert(k)

/* What a poll decided. */
#define NOTHING 0
#define TAKE 1      /* the lock was released */
#define CHALLENGE 2 /* its holder is not heard */
#define DEPOSE 3    /* its holder left a challenge unanswered */
#define ANSWER 4
#define RELEASE 5

typedef Node {
	bool paused;
	bool polled;     /* in this tick */
	byte intent;
	bool changed;    /* the lock row has changed since its last poll */
	byte gap;        /* ticks since its last poll */
	byte leads;      /* the grant with which the process leads; 0: none */
	byte spent;      /* the grant of its last leadership that is over */
	byte led;        /* the newest grant with which it has led */
	byte wants;      /* the member to which it releases the lock; 0: none */
	byte rested;     /* ticks before this one since its last poll */
	bool ended;      /* a feed of it has ended, which it has to notice */
	bool fast;       /* it has noticed */

	/* As a candidate. */
	byte waited;     /* ticks since it first saw the challenge in the row, and one; 0: it has seen none */
	byte deadline;
	bool fed;        /* it had a feed of this leadership */
	bool refused;    /* its last attempt to take the lock failed */

#ifdef READ_ONLY
	bool tried;      /* it has failed to take the lock while the database took no writes */
	bool ran;        /* it has not been paused since that began */
#endif
}
Node node[NODES];
byte holder = 0; /* the lock row; node n is n + 1 */
byte grant = 0;
bool challenged = false; /* the row has a challenge */
byte feed = 0;   /* the member whose feed the other one has; 0: none */
bool up = true;  /* the database */
byte healthy;    /* ticks in which the process that the row names could write, since it was paused */
byte late;       /* ticks for which it has not run, and the other one could replace it */
#ifdef READ_ONLY
bool writes = true; /* the database takes writes, if it is up */
bool outage;        /* it took none at some time */
#else
#define writes true
#endif

#define other (1 - n)
#define name(n) ((n) + 1)
/* node.KeepsLock and Registry.RecordHeartbeat: the leader's feed says that it has read the row. */
#define hears(n) (feed == name(other) && !node[other].paused && up)
#define mayRest(n) (node[n].leads && !node[n].fast && node[n].rested + 1 < POLL)

inline write(n) {
	node[0].changed = true; node[1].changed = true;
	node[n].changed = false; /* it knows what it has written */
	node[n].waited = 0
}
inline writeLock(n, member) {
	holder = member;
	grant++;
	challenged = false;
	healthy = 0; late = 0;
	node[0].fed = false; node[1].fed = false;
	write(n)
}

/* The end of feed.service.Follow; for the follower, that the leader's address refuses connections (Registry.Refused). */
inline endFeed(n) {
	if
	:: feed == name(n) ->
		feed = 0; node[n].ended = true;
/* Without this safeguard: the end of a feed makes a wait short that began before, and the leader is deposed when it
   begins to poll often. */
#ifndef WAIT_CONTINUES
		if
		:: node[other].waited && node[other].waited + FAST < node[other].deadline -> node[other].waited = 0
		:: else
		fi
#endif
	:: else
	fi
}
/* Registry.FeedEnded */
inline notice(n) {
	node[n].ended = false;
/* Without this safeguard: a leader polls rarely although a follower lost its feed, and is deposed. */
#ifndef FEED_END_NOT_NOTICED
	node[n].fast = true
#endif
}

inline begin(n) {
	assert(grant > node[n].led); /* once for each grant */
	node[n].led = grant;
	node[n].leads = grant
}

inline start(n) {
	node[n].waited = 1;
	node[n].gap = 0;
/* Without this safeguard: a member that had no feed deposes a leader, which polls rarely. */
#ifdef SHORT_WAIT_WITHOUT_FEED
	node[n].deadline = FAST
#else
	node[n].deadline = (node[n].fed && feed == 0 -> FAST : SLOW)
#endif
}
/* elector.await: the challenge that the poll has found. A gap counts for half of the deadline at most. */
inline await(n) {
	if
	:: !challenged -> node[n].waited = 0; node[n].refused = false
	:: challenged && (node[n].changed || node[n].waited == 0) -> start(n)
#ifdef CLOCK_COUNTS_OUTAGE
	:: else -> node[n].waited = node[n].waited + node[n].gap
#else
	:: else -> node[n].waited = node[n].waited + (node[n].gap > node[n].deadline / 2 -> node[n].deadline / 2 : node[n].gap)
#endif
	fi
}
#ifdef WAIT_CONTINUES
#define due(n) (node[n].fed && feed == 0 -> FAST : node[n].deadline)
#else
#define due(n) node[n].deadline
#endif
#define over(n) (node[n].waited > due(n))

/* Registry.poll and elector.step */
inline poll(n) {
	node[n].polled = true;
	await(n);
	node[n].gap = 0;
	node[n].changed = false;
	node[n].intent = NOTHING;
/* Without this safeguard: a process that was deposed and granted the lock again does not notice that another one led.
   */
#ifdef GRANT_NOT_COMPARED
#define lost(n) (holder != name(n))
#else
#define lost(n) (holder != name(n) || grant != node[n].leads)
#endif
	if
	:: node[n].leads && lost(n) -> node[n].spent = node[n].leads; node[n].leads = 0; endFeed(n); reach(1)
	:: else
	fi;
	if
/* Without this safeguard: a leader that runs is deposed because its address refuses connections. */
#ifndef CHALLENGE_NOT_ANSWERED
	:: node[n].leads && challenged -> node[n].intent = ANSWER
#endif
	:: !node[n].leads && holder == name(n) ->
		if
/* Without this safeguard: a process leads twice with one grant. */
#ifndef SPENT_NOT_REMEMBERED
		:: grant == node[n].spent -> node[n].intent = RELEASE
#endif
		:: else -> begin(n); node[n].polled = !challenged; reach(2)
		fi
	:: !node[n].leads && holder == 0 && grant < GRANTS && (grant > 0 || n == 0) -> node[n].intent = TAKE
	:: !node[n].leads && holder == name(other) && grant < GRANTS && !hears(n) ->
		if
		:: challenged && over(n) && !node[n].refused -> node[n].intent = DEPOSE
		:: !challenged || node[n].refused -> node[n].intent = CHALLENGE
		:: else
		fi
	:: else
	fi;
	forget(n);
	/* A leader that has read the row leads with the grant in it. */
	assert(!node[n].leads || holder == name(n) && grant == node[n].leads)
}

/* What a process need not know makes no difference between states. */
inline forget(n) {
	if
	:: node[n].leads || holder != name(other) -> node[n].waited = 0; node[n].refused = false
	:: else
	fi;
	if
	:: node[n].waited == 0 -> node[n].deadline = 0
	:: else
	fi;
	if
	:: !node[n].leads && !node[n].ended -> node[n].fast = false; node[n].rested = 0
	:: else
	fi
}

/* The process gets the answer and begins to lead, or sees the grant with its next poll. */
inline known(n) {
	if
	:: begin(n)
	:: true
	fi
}

/* A commit fails: the database takes no writes, or for another reason. */
inline fails(n) {
	late = 0;
/* Without this safeguard: a leader that ran is deposed because the database took no writes. */
#ifndef NO_NEW_CHALLENGE
	if
	:: node[n].intent == DEPOSE -> node[n].refused = true
	:: else
	fi;
#endif
#ifdef READ_ONLY
	if
	:: node[n].intent == DEPOSE && !writes -> node[n].tried = true; reach(6)
	:: else
	fi
#endif
}

/* elector.swap: one commit. It replaces what the poll has read, or nothing. */
inline act(n) {
	if
	:: node[n].intent == TAKE && writes && !node[n].changed -> writeLock(n, name(n)); known(n)
	:: node[n].intent == CHALLENGE && writes && !node[n].changed ->
		challenged = true; write(n); start(n); node[n].refused = false
/* Without this safeguard: a leader is deposed although it has just answered. */
#ifdef ANSWER_NOT_COMPARED
	:: node[n].intent == DEPOSE && writes && holder == name(other) ->
#else
	:: node[n].intent == DEPOSE && writes && !node[n].changed ->
#endif
		/* A leader that runs, and can write, is not deposed. */
		assert(!node[other].leads || healthy < RUNS);
#ifdef READ_ONLY
		/* Nor is one that ran while the database took no writes, by a process that has tried to take the lock. */
		assert(!(node[other].leads && node[other].ran && node[n].tried));
		reach(7);
#endif
		if
		:: node[n].deadline == FAST -> reach(3)
		:: else -> reach(4)
		fi;
		writeLock(n, name(n));
		known(n)
	:: node[n].intent == ANSWER && writes && !node[n].changed ->
		if
		:: node[n].rested -> reach(8)
		:: else -> reach(5)
		fi;
		challenged = false; write(n)
/* Without this safeguard: a process releases the lock that another one has taken. */
#ifdef RELEASE_UNCONDITIONAL
	:: node[n].intent == RELEASE && writes ->
#else
	:: node[n].intent == RELEASE && writes && !node[n].changed ->
#endif
		assert(holder == name(n) && grant == node[n].spent); /* a release takes nothing from another process */
		writeLock(n, node[n].wants);
		node[n].wants = 0
	:: node[n].changed -> node[n].polled = false /* a conflict: it polls at once */
	:: node[n].intent != ANSWER || !writes -> fails(n)
	fi;
	node[n].intent = NOTHING
}

inline isPaused(n) {
	late = 0;
	if
	:: holder == name(n) -> healthy = 0
	:: else
	fi
}

proctype Process(byte n) {
	do
	:: atomic { !node[n].paused && up && !node[n].polled && !node[n].intent -> poll(n) }
	:: atomic { !node[n].paused && up && node[n].intent -> act(n) }
#ifdef ENDS
	/* Leading ends by itself, or is to be transferred; the next poll releases the lock. */
	:: atomic { !node[n].paused && node[n].leads ->
		node[n].spent = node[n].leads; node[n].leads = 0; endFeed(n); node[n].intent = NOTHING }
	:: atomic { !node[n].paused && node[n].leads && grant < GRANTS ->
		node[n].spent = node[n].leads; node[n].leads = 0; node[n].wants = name(other); endFeed(n); node[n].intent = NOTHING }
#endif
#ifdef FEEDS
	:: atomic { !node[n].paused && !node[other].paused && node[n].leads && !node[other].leads && holder == name(n) && feed == 0 ->
		feed = name(n); node[other].fed = true; reach(9) }
	:: atomic { feed == name(n) -> endFeed(n) }
	:: atomic { !node[n].paused && node[n].ended -> notice(n) }
#endif
#ifdef READ_ONLY
	:: atomic { !node[n].paused -> node[n].paused = true; isPaused(n); node[n].ran = false }
#else
	:: atomic { !node[n].paused -> node[n].paused = true; isPaused(n) }
#endif
	:: atomic { node[n].paused -> node[n].paused = false; late = 0 }
	od
}

/* A process that runs has polled, and written what it has to, before the tick ends, if it could. */
#define ready(n) (node[n].paused || !node[n].ended && (!up || (node[n].polled || mayRest(n)) && (!node[n].intent || !writes && node[n].intent == ANSWER)))
inline tick(n) {
	if
	:: node[n].polled || !node[n].leads -> node[n].rested = 0
	:: !node[n].polled && node[n].leads && node[n].rested + 1 < POLL -> node[n].rested++
	:: else
	fi;
	node[n].polled = false;
	if
	:: node[n].gap < GAP -> node[n].gap++
	:: else
	fi;
#ifndef CLOCK_COUNTS_OUTAGE
	if
	:: !up && !node[n].paused && node[n].waited -> /* pending.missed */
		node[n].waited = (node[n].waited > POLL -> node[n].waited - POLL : 1);
		node[n].gap = 1
	:: else
	fi;
#endif
	skip
}
#ifdef READ_ONLY
/* One time without writes. */
inline turn() {
	if
	:: writes && !outage ->
		writes = false; outage = true;
		node[0].ran = !node[0].paused; node[1].ran = !node[1].paused
	:: !writes -> writes = true
	:: true
	fi
}
#endif
/* Of the process n, which the lock row names. */
inline judge(n) {
	if
	:: !node[n].paused && up && writes && healthy < RUNS -> healthy++
	:: !writes -> healthy = 0
	:: else
	fi;
	if
	:: node[n].paused && !node[other].paused && up && writes && grant < GRANTS -> late++
	:: else -> late = 0
	fi;
	assert(late <= SLOW + 2) /* one that is gone is replaced */
}
proctype Time() {
	do
	:: atomic {
		ready(0) && ready(1) ->
		tick(0); tick(1);
		if
		:: holder == 1 -> judge(0)
		:: holder == 2 -> judge(1)
		:: else
		fi;
#ifdef READ_ONLY
		turn()
#else
		if
		:: up = true
		:: up = false
		fi
#endif
	}
	od
}

init {
	atomic {
		run Process(0);
		run Process(1);
		run Time()
	}
}
