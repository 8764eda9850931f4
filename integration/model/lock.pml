/*
 * The election: glances, heartbeats, challenges, the lock row. docs/model.md explains the model.
 *
 * A tick is timing.Answer: a process that runs glances once in a tick while it can read the database.
 *
 * With FEEDS a leader is calm until a feed of it has ended, and then glances once in CALM ticks only. A member that had a
 * feed of the leader's process waits for an answer as if the leader glanced in each tick, any other for longer. Both sides
 * notice the end of a feed within a tick.
 */

#ifndef GRANTS
#define GRANTS 3
#endif
#define NODES 2
#define LEASE 3   /* ticks without a change of the holder's row, timing.Lease */
#define RETRY 2   /* ticks between heartbeats of the holder, timing.RetryPeriod */
#define DOUBT 1   /* ticks without a change after which a quiet holder is challenged, a part of the lease */
#ifdef FEEDS
#define ASKED 3   /* more than the leader may rest; the code waits for two of the intervals in the leader's row */
#else
#define ASKED 2   /* ticks for which the challenge must be there then, timing.ChallengeShare */
#endif
#define SILENCE 1 /* ticks without an answer to a challenge, timing.DeathSilence */
#define CALM 2    /* ticks between glances of a calm leader, timing.CalmAnswer */
#define LONG 3    /* as SILENCE, for a member that had no feed of the leader's process */

#ifdef CLOCK_COUNTS_OUTAGE
#define GAP LEASE
#else
#define GAP 1
#endif

#define reach(k) assert(k)

/* What a glance decided. */
#define NOTHING 0
#define TAKE 1    /* the lock was released */
#define DEPOSE 2  /* its holder is silent */
#define RELEASE 3
#define PROBE 4   /* its holder is silent, and an attempt to take the lock has failed, or it is quiet */

typedef Node {
	bool paused;
	bool glanced;    /* in this tick */
	byte intent;
	bool heartbeat;  /* to be sent */
	bool challenged; /* the member row has a challenge */
	byte age;        /* ticks since the last heartbeat */
	byte leads;      /* the grant with which the process leads; 0: none */
	byte spent;      /* the grant of its last leadership that is over */
	byte led;        /* the newest grant with which it has led */
	byte wants;      /* the member to which it releases the lock; 0: none */

	/* What it knows of the other node, and of the lock row. */
	bool beaten;     /* there was a heartbeat since the last glance */
	bool rowChanged; /* the other's row has changed since the last glance */
	bool lockChanged;
	bool newLock;    /* the lock row has changed since the last glance: silence counts from now */
	byte silent;     /* ticks of its own clock */
	byte gap;        /* ticks since its last read */
	bool gone;       /* the other's process left challenges unanswered */
	byte suspects;   /* challenges without an answer; 0: no suspicion */
	bool waited;     /* a tick since the last challenge */
	bool answered;

#ifdef FEEDS
	byte rested;     /* ticks before this one since its last glance */
	bool ended;      /* a feed of it has ended, which it has to notice */
	bool hurries;    /* it has noticed: it is not calm */
	bool fed;        /* it had a feed of the other's process */
	byte patience;   /* of its suspicion */
#endif
#ifdef QUIET
	byte asked;      /* glances that found a challenge in the other's row, since its last heartbeat */
#endif
	byte healthy;    /* ticks for which it has run, and could write, since it was paused */
#ifdef READ_ONLY
	bool refused;    /* its last attempt to take the lock failed */
	byte rest;       /* ticks of its own clock before its next attempt */
	bool tried;      /* it has failed while the database took no writes */
	bool ran;        /* it has not been paused since that began */
#endif
}
Node node[NODES];
byte holder = 0; /* the lock row; node n is n + 1 */
byte grant = 0;
#ifdef FEEDS
#define up true  /* the other configurations have outages, and leaders that stop */
#else
bool up = true;  /* the database */
#endif
#ifdef READ_ONLY
bool writes = true; /* the database takes writes, if it is up */
bool outage;        /* it took none at some time */
#else
#define writes true
#endif

#define other (1 - n)
#define name(n) ((n) + 1)

#ifdef FEEDS
byte feed = 0; /* the member whose feed the other one has; 0: none */

/* feed.service.Follow returns, and the follower's feed.Next. */
inline endFeed(n) {
	if
	:: feed == name(n) -> feed = 0; node[n].ended = true
	:: else
	fi
}
/* Registry.FeedEnded */
inline notice(n) {
	node[n].ended = false;
#ifndef FEED_END_NOT_NOTICED
	node[n].hurries = true
#endif
}
#ifdef SHORT_WAIT_WITHOUT_FEED
#define begins(n) node[n].patience = SILENCE
#else
#define begins(n) node[n].patience = (node[n].fed -> SILENCE : LONG) /* Registry.answersOf */
#endif
#define patience(n) node[n].patience
#define calm(n) (node[n].leads && !node[n].hurries)
#define mayRest(n) (calm(n) && node[n].rested + 1 < CALM)
#define noticed(n) (!node[n].ended)
#define refuses(n) (feed != name(n))
#define goesOn (grant < GRANTS) /* afterwards no leader is deposed; the other configurations have the rest */
#else
#define endFeed(n) skip
#define begins(n) skip
#define patience(n) SILENCE
#define mayRest(n) false
#define noticed(n) true
#define refuses(n) true
#define goesOn true
#endif

inline writeLock(n, member) {
	holder = member;
	grant++;
	node[0].lockChanged = true; node[1].lockChanged = true;
	node[0].newLock = true; node[1].newLock = true
}

inline challenge(n) {
	node[other].challenged = true;
	node[n].rowChanged = true
}

/* Registry.beat */
inline beat(n) {
	node[n].heartbeat = false; node[n].challenged = false; node[n].age = 0;
	node[other].beaten = true; node[other].rowChanged = true; node[other].answered = true
}

inline begin(n) {
	assert(grant > node[n].led); /* once for each grant */
	node[n].led = grant;
	node[n].leads = grant;
	node[n].heartbeat = true
}

#ifdef QUIET
/* The holder sends no heartbeats that nobody asked for, and nobody hears it otherwise. */
#ifdef NO_DOUBT
#define mayDepose(n) (node[n].silent == LEASE || node[n].gone)
#define mayDoubt(n) false
#else
#define mayDepose(n) (node[n].silent == LEASE && node[n].asked > ASKED || node[n].gone)
#define mayDoubt(n) (node[n].silent >= DOUBT && !node[other].challenged)
#endif
#elif defined(READ_ONLY)
#define mayDepose(n) (node[n].silent == LEASE && node[n].rest == 0)
#else
#define mayDepose(n) (node[n].silent == LEASE || node[n].gone)
#endif

/* Registry.glance, view.glanced and elector.step */
inline glance(n) {
	node[n].glanced = true;
#ifdef FEEDS
	if
	:: node[n].leads && node[n].rested > 0 && node[n].challenged -> reach(10)
	:: else
	fi;
#endif
#ifdef CLOCK_COUNTS_OUTAGE
	node[n].silent = (node[n].silent + node[n].gap > LEASE -> LEASE : node[n].silent + node[n].gap);
#else
	if
	:: node[n].gap && node[n].silent < LEASE -> node[n].silent++
	:: else
	fi;
#endif
#ifdef READ_ONLY
	if
	:: node[n].gap && node[n].rest -> node[n].rest--
	:: else
	fi;
#endif
	node[n].gap = 0;
	if
	:: node[n].beaten -> node[n].silent = 0; node[n].gone = false; node[n].beaten = false
	:: else
	fi;
#ifdef QUIET
	if
	:: !node[other].challenged -> node[n].asked = 0
	:: node[other].challenged && node[n].asked <= ASKED -> node[n].asked++
	:: else
	fi;
#endif
	if
	:: node[n].newLock -> node[n].silent = 0; node[n].newLock = false
	:: else
	fi;
	node[n].rowChanged = false; node[n].lockChanged = false;
	node[n].intent = NOTHING;
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
	:: node[n].leads
	:: !node[n].leads && holder == name(n) ->
		if
#ifndef SPENT_NOT_REMEMBERED
		:: grant == node[n].spent -> node[n].intent = RELEASE
#endif
		:: else -> begin(n); reach(2)
		fi
	:: !node[n].leads && holder == 0 && grant < GRANTS && (grant > 0 || n == 0) -> node[n].intent = TAKE
	:: !node[n].leads && holder == name(other) && grant < GRANTS && mayDepose(n) ->
#ifdef READ_ONLY
		node[n].intent = (node[n].refused -> PROBE : DEPOSE)
#else
		node[n].intent = DEPOSE
#endif
#ifdef QUIET
	:: !node[n].leads && holder == name(other) && grant < GRANTS && !mayDepose(n) && mayDoubt(n) -> node[n].intent = PROBE
#endif
	:: else
	fi;
	/* A leader that has read the row leads with the grant in it. */
	assert(!node[n].leads || holder == name(n) && grant == node[n].leads);
	if
#ifndef CHALLENGE_NOT_ANSWERED
	:: node[n].challenged -> node[n].heartbeat = true
#endif
#ifndef QUIET
	:: node[n].leads && node[n].age >= RETRY -> node[n].heartbeat = true
#endif
	:: else
	fi
}

/* The process gets the answer and begins to lead, or sees the grant with its next glance. */
inline known(n) {
	if
	:: begin(n)
	:: true
	fi
}

/* A commit fails: the database takes no writes, or for another reason. */
inline fails(n) {
#ifdef READ_ONLY
#ifndef NO_PROBE
	if
	:: node[n].intent == DEPOSE -> node[n].refused = true
	:: else
	fi;
#endif
	if
	:: node[n].intent == DEPOSE && !writes -> node[n].tried = true; reach(6)
	:: else
	fi
#else
	skip
#endif
}

/* elector.swap: one commit. It replaces what the glance has read, or nothing. */
inline act(n) {
	if
#ifdef READ_ONLY
	/* elector.probe */
	:: node[n].intent == PROBE && writes && !node[n].lockChanged && !node[n].rowChanged ->
		challenge(n);
		node[n].refused = false; node[n].rest = 2 * RETRY
#endif
#ifdef QUIET
	:: node[n].intent == PROBE && !node[n].lockChanged && !node[n].rowChanged -> challenge(n); reach(8)
#endif
	:: node[n].intent == TAKE && writes && !node[n].lockChanged -> writeLock(n, name(n)); known(n)
#ifdef NO_CHALLENGE_IN_TAKE
	:: node[n].intent == DEPOSE && writes && !node[n].lockChanged ->
#else
	:: node[n].intent == DEPOSE && writes && !node[n].lockChanged && !node[n].rowChanged ->
#endif
		/* A leader that runs, and can write, is not deposed. */
		assert(!node[other].leads || node[other].healthy < 2);
#ifdef READ_ONLY
		/* Nor is one that ran while the database took no writes, by a process that has tried to. */
		assert(!(node[other].leads && node[other].ran && node[n].tried));
		reach(7);
#else
		if
		:: node[n].gone -> reach(3)
		:: else -> reach(4)
		fi;
#endif
		writeLock(n, name(n));
		challenge(n);
		known(n)
#ifdef RELEASE_UNCONDITIONAL
	:: node[n].intent == RELEASE && writes ->
#else
	:: node[n].intent == RELEASE && writes && !node[n].lockChanged ->
#endif
		assert(holder == name(n) && grant == node[n].spent); /* a release takes nothing from another process */
		writeLock(n, node[n].wants);
		node[n].wants = 0
	:: true /* a conflict */
	:: fails(n)
	fi;
	node[n].intent = NOTHING
}

/* member.challenge: the leader's address refuses connections. */
inline suspect(n) {
	if
	:: node[n].suspects > 0 && node[n].answered -> node[n].suspects = 0; node[n].waited = false; reach(5)
	:: node[n].suspects > patience(n) && !node[n].answered -> node[n].gone = true; node[n].suspects = 0; node[n].waited = false
	:: else ->
		if
		:: node[n].suspects == 0 -> node[n].answered = false; begins(n)
		:: else
		fi;
		node[n].suspects++;
		node[n].waited = false;
		challenge(n)
	fi
}
#ifdef READ_ONLY
#define maySuspect(n) false
#else
#define maySuspect(n) (n == 1 && refuses(other) && (node[n].suspects == 0 && holder == name(other) && !node[n].gone || node[n].suspects > 0 && node[n].waited))
#endif

proctype Process(byte n) {
	do
	:: atomic { !node[n].paused && up && !node[n].glanced && (!writes || !node[n].heartbeat) && !node[n].intent -> glance(n) }
	:: atomic { !node[n].paused && up && writes && node[n].heartbeat -> beat(n) }
	:: atomic { !node[n].paused && up && node[n].intent -> act(n) }
	:: atomic { !node[n].paused && up && maySuspect(n) -> suspect(n) }
#ifndef FEEDS
	/* Leading ends by itself, or is to be transferred; the next glance releases the lock. */
	:: atomic { !node[n].paused && node[n].leads -> node[n].spent = node[n].leads; node[n].leads = 0 }
	:: atomic { !node[n].paused && node[n].leads && grant < GRANTS ->
		node[n].spent = node[n].leads; node[n].leads = 0; node[n].wants = name(other) }
#else
	:: atomic { n == 0 && !node[n].paused && !node[other].paused && node[n].leads && !node[other].leads && feed == 0 ->
		feed = name(n); node[other].fed = true; reach(9) }
	:: atomic { feed == name(n) -> endFeed(n) }
	:: atomic { !node[n].paused && node[n].ended -> notice(n) }
#endif
#ifdef READ_ONLY
	:: atomic { !node[n].paused -> node[n].paused = true; node[n].healthy = 0; node[n].ran = false }
#else
	:: atomic { !node[n].paused -> node[n].paused = true; node[n].healthy = 0 }
#endif
	:: atomic { node[n].paused -> node[n].paused = false }
	od
}

/* A process that runs has glanced, and sent what it has to, before the tick ends, if it could. */
#define ready(n) (node[n].paused || noticed(n) && (!up || (node[n].glanced || mayRest(n)) && (!writes || !node[n].heartbeat) && !node[n].intent))
inline tick(n) {
#ifdef FEEDS
	if
	:: node[n].glanced || !node[n].leads -> node[n].rested = 0
	:: !node[n].glanced && node[n].leads && node[n].rested < CALM -> node[n].rested++
	:: else
	fi;
#endif
	node[n].glanced = false;
	if
	:: node[n].gap < GAP -> node[n].gap++
	:: else
	fi;
	if
	:: node[n].age < RETRY -> node[n].age++
	:: else
	fi;
	if
	:: node[n].suspects -> node[n].waited = true
	:: else
	fi;
	if
	:: !node[n].paused && up && writes && node[n].healthy < 2 -> node[n].healthy++
	:: else
	fi
}
#ifdef READ_ONLY
/* One time without writes. */
inline turn() {
	if
	:: writes && !outage ->
		writes = false; outage = true;
		node[0].healthy = 0; node[1].healthy = 0;
		node[0].ran = !node[0].paused; node[1].ran = !node[1].paused
	:: !writes -> writes = true
	:: true
	fi
}
#endif
proctype Time() {
	do
	:: atomic {
		goesOn && ready(0) && ready(1) ->
		tick(0); tick(1);
#ifdef READ_ONLY
		turn();
#endif
#ifndef FEEDS
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
