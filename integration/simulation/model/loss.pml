/*
 * A database that loses its newest commits. docs/model.md explains the model.
 *
 * What fence.pml checks is assumed here: a commit is one step, and every node may try to lead at any time.
 */

#ifndef TERMS
#define TERMS 3
#endif
#ifndef CHANGES
#define CHANGES 5 /* of the fence row, in one history */
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define NODES 2

#define reach(k) assert(k)

/* coder.FenceToken without the attempt number, which nothing compares here. */
typedef Token { byte seq; byte term; byte rev }
inline copy(A, B) { A.seq = B.seq; A.term = B.term; A.rev = B.rev }
/* fence.CheckToken: A is what was seen, B what the row holds. */
#define older(A, B) (B.seq < A.seq || B.rev < A.rev || B.term < A.term)
#define BEYOND 100 /* Seen.ObserveLoss: no leader reaches that */

typedef Node {
	bool leads;
	Token held;
	Token seen;   /* fence.Seen.Newest */
	byte front;
	bool checked; /* CheckDataLoss found nothing: Take follows */
	bool late;    /* ... before a loss was recorded */
	bool stopped; /* it serves nothing */
	bool report;  /* LossRecorder has to write the data loss marker */
	bool left;    /* it is no longer a member, and has to compare what it has seen */
	bool done;    /* it has stopped after the loss, and has reported what it knows */
	bool follows; /* it has the feed of the other node, which leads */
	byte term;    /* the last term in which its revisions were compared with the table */
	byte view[CHANGES]; /* who wrote each revision, as this node has shown it: the term */
}
Node node[NODES];

Token fence;
Token past[CHANGES + 1]; /* the values of the row, by sequence */
byte writer[CHANGES];    /* the term that wrote a revision, as the table has it */
bool recorded;
Token lost;              /* the data loss marker */
byte losses;
bool termLost;           /* a term was lost with its commits, so another leader may have the same term: a limit */
byte i;

inline note(n) {
	if
	:: fence.seq > node[n].seen.seq -> node[n].seen.seq = fence.seq
	:: else
	fi;
	if
	:: fence.term > node[n].seen.term -> node[n].seen.term = fence.term
	:: else
	fi;
	if
	:: fence.rev > node[n].seen.rev -> node[n].seen.rev = fence.rev
	:: else
	fi
}

/* leader.End, Backend.stopServing */
inline stops(n) {
	node[n].leads = false; node[n].checked = false; node[n].stopped = true; node[n].report = true;
	node[n].follows = false; node[1 - n].follows = false;
	node[n].held.seq = 0; node[n].held.term = 0; node[n].held.rev = 0
}
inline deposed(n) {
	node[n].leads = false; node[1 - n].follows = false;
	node[n].held.seq = 0; node[n].held.term = 0; node[n].held.rev = 0
}

/*
 * Backend.verify compares the newest revision. The fence row may have grown past everything that the node has seen
 * there. A commit is told from another one by its term.
 */
/* Without this safeguard: a follower answers with a lost revision, whose number another commit has. */
#ifdef NO_CONTENT_CHECK
#define replaced(n) false
#else
#define replaced(n) (node[n].front > 0 && node[n].view[node[n].front] != writer[node[n].front])
#endif
/* Backend.replaced */
inline finds(n) { node[n].seen.seq = BEYOND; stops(n) }

/* A node shows the table up to the row's revision. */
inline shows(n) {
	for (i : 1 .. CHANGES - 1) {
		if
		:: i <= node[n].front && i <= fence.rev -> assert(termLost || node[n].view[i] == writer[i])
		:: i > node[n].front && i <= fence.rev -> node[n].view[i] = writer[i]
		:: else
		fi
	}
	i = 0;
	if
	:: fence.rev > node[n].front -> node[n].front = fence.rev
	:: else
	fi
}

/* Without this safeguard: a node that has seen lost data answers. */
#ifdef NO_LOSS_CHECK
#define lostSeen(n) false
#else
#define lostSeen(n) older(node[n].seen, fence)
#endif
/* Without this safeguard: a node that starts later writes a recorded revision again. */
#ifdef NO_LOST_ROW
#define lossRecorded false
#else
#define lossRecorded (recorded && older(lost, fence))
#endif

/* fence.CheckDataLoss, before Take and before a replica is brought up to date */
inline check(n) {
	if
	:: lossRecorded -> stops(n); reach(2)
	:: else -> node[n].checked = true; node[n].late = !recorded
	fi
}

/* fence.Acquire */
#define canTake(n) (node[n].checked && !node[n].leads && fence.term < TERMS && fence.seq < CHANGES)
inline take(n) {
	node[n].checked = false;
	if
	:: lostSeen(n) -> stops(n); reach(3)
	:: else ->
		fence.seq++; fence.term++;
		copy(past[fence.seq], fence);
		if
		:: replaced(n) -> finds(n); reach(9)
		:: else ->
			copy(node[n].held, fence);
			note(n);
			shows(n);
			node[n].term = fence.term;
			node[n].follows = false;
			node[n].leads = true
		fi
	fi
}

/* fence.CheckToken: the leader looks at the row. */
inline judge(n) {
	if
	:: lostSeen(n) -> stops(n); reach(4)
	:: !lostSeen(n) && fence.term > node[n].held.term -> deposed(n); reach(5)
	:: else ->
		assert(!older(node[n].seen, fence)) /* an answer knows everything that its node has seen */
	fi
}

/* fence.Holder.Commit; a conflict is resolved and judged. */
inline commit(n) {
	if
	:: fence.seq == node[n].held.seq && fence.term == node[n].held.term ->
		fence.seq++; fence.rev++;
		/* What a stopped node has recorded is not replaced by a leader that looked at the record. */
		assert(node[n].late || !recorded || fence.rev > lost.rev);
		writer[fence.rev] = fence.term;
		copy(past[fence.seq], fence);
		copy(node[n].held, fence);
		note(n);
		shows(n)
	:: else -> judge(n)
	fi
}

/* Backend.Check and CatchUp */
inline catchUp(n) {
	node[n].checked = false;
	if
	:: lostSeen(n) -> stops(n); reach(6)
	:: !lostSeen(n) && replaced(n) -> finds(n); reach(1)
	:: else ->
		assert(!older(node[n].seen, fence));
		note(n);
		shows(n);
		node[n].term = fence.term
	fi
}

/* Position: a leader that finds its value in the row answers. */
#define answers(m) (node[m].leads && fence.seq == node[m].held.seq && fence.term == node[m].held.term)

/* The first update of a feed. Backend.Verify */
#define canFollow(n, m) (answers(m) && !node[n].leads && !node[n].stopped && !node[n].follows && node[n].front <= node[m].front)
inline follow(n, m) {
	if
	:: replaced(n) -> finds(n); reach(7)
	:: else ->
		node[n].follows = true;
		node[n].term = node[m].held.term
	fi
}

/* Backend.Apply: the feed reports revisions and the term, not the row. */
#define fed(n, m) (node[n].follows && node[n].front < node[m].front)
inline apply(n, m) {
	assert(termLost || node[n].front == 0 || node[n].view[node[n].front] == node[m].view[node[n].front]);
	node[n].front++;
	node[n].view[node[n].front] = node[m].view[node[n].front];
	if
	:: node[n].front > node[n].seen.rev -> node[n].seen.rev = node[n].front
	:: else
	fi;
	if
	:: node[m].held.term > node[n].seen.term -> node[n].seen.term = node[m].held.term
	:: else
	fi
}

/* A linearizable read of a follower, which is answered once it shows the leader's revision. Backend.awaitShown */
#define canAsk(n, m) (answers(m) && !node[n].leads && !node[n].stopped)
inline ask(n, m) {
	if
	:: node[m].held.term != node[n].term && replaced(n) -> finds(n); reach(10)
	:: else ->
		node[n].term = node[m].held.term;
		if
		:: node[n].front >= node[m].front ->
			for (i : 1 .. CHANGES - 1) {
				if
				:: i <= node[m].front && node[n].view[i] != writer[i] -> assert(termLost); reach(11)
				:: else
				fi
			}
			i = 0
		:: else
		fi
	fi
}

/* What n has shown is not in the table. */
#define knowsLost(n) (node[n].front > 0 && (node[n].front > fence.rev || node[n].view[node[n].front] != writer[node[n].front]))

/*
 * fence.LossRecorder. Its commit proves that the fence row is older, or a revision does once the row has grown. Then the lost
 * row has a sequence that no leader reaches.
 */
inline record(n) {
	node[n].report = false;
	node[n].done = true;
	recorded = true;
/* Without this safeguard: the fence row outgrows the record of a loss, and all other nodes continue. */
#ifndef RECORD_NOT_RAISED
	if
	:: lostSeen(n) -> node[n].seen.seq = BEYOND
/* Without this safeguard: the fence row outgrows the record of a loss, and all other nodes continue, if the node can
   write only once the fence row has grown. */
#ifndef NO_PROOF_BY_CONTENT
	:: !lostSeen(n) && replaced(n) -> node[n].seen.seq = BEYOND; reach(12)
#endif
	:: else
	fi;
#endif
	if
	:: node[n].seen.seq > lost.seq -> lost.seq = node[n].seen.seq
	:: else
	fi;
	if
	:: node[n].seen.term > lost.term -> lost.term = node[n].seen.term
	:: else
	fi;
	if
	:: node[n].seen.rev > lost.rev -> lost.rev = node[n].seen.rev
	:: else
	fi
}

/* Another process took its place as a member, or the database lost that it joined. Node.watchMembership */
inline leave(n) { deposed(n); node[n].follows = false; node[n].checked = false; node[n].stopped = true; node[n].left = true }

/* Backend.CompareLast */
inline compareLast(n) {
	node[n].left = false;
	if
/* Without this safeguard: a process whose start was lost too does not report the loss. */
#ifndef NO_LAST_COMPARISON
	:: lostSeen(n) -> node[n].report = true; reach(13)
	:: !lostSeen(n) && replaced(n) -> node[n].seen.seq = BEYOND; node[n].report = true; reach(14)
#endif
	:: else -> node[n].done = losses > 0
	fi
}

inline restart(n) {
	deposed(n);
	node[n].left = false; node[n].done = false;
	node[n].stopped = false; node[n].report = false; node[n].checked = false; node[n].late = false;
	node[n].front = 0; node[n].term = 0; node[n].follows = false;
	node[n].seen.seq = 0; node[n].seen.term = 0; node[n].seen.rev = 0;
	for (i : 0 .. CHANGES - 1) { node[n].view[i] = 0 }
	i = 0
}

/* The database loses its newest commits: an asynchronous replica became the primary, or a backup was restored. */
inline lose(s) {
	losses++;
	termLost = past[s].term != fence.term;
	copy(fence, past[s]);
	for (i : 1 .. CHANGES - 1) {
		if
		:: i > fence.rev -> writer[i] = 0
		:: else
		fi
	}
	i = 0
}

proctype Process(byte n) {
	do
	:: atomic { !node[n].leads && !node[n].stopped && !node[n].checked -> check(n) }
	:: atomic { canTake(n) -> take(n) }
	:: atomic { node[n].leads && fence.seq < CHANGES && fence.rev < CHANGES - 1 -> commit(n) }
	:: atomic { node[n].leads -> judge(n) }
	:: atomic { node[n].leads && lossRecorded -> stops(n); reach(8) } /* Authority.Watch */
	:: atomic { node[n].leads -> deposed(n) }
	:: atomic { node[n].checked -> catchUp(n) }
	:: atomic { canFollow(n, 1 - n) -> follow(n, 1 - n) }
	:: atomic { node[n].follows -> node[n].follows = false }
	:: atomic { fed(n, 1 - n) -> apply(n, 1 - n) }
	:: atomic { canAsk(n, 1 - n) -> ask(n, 1 - n) }
	:: atomic { node[n].report -> record(n) }
	:: atomic { !node[n].stopped -> leave(n) }
	:: atomic { node[n].left -> compareLast(n) }
	:: atomic { restart(n) }
	od
}

/* No leader outgrows what a node knows of a loss once the node has reported it. */
#define forgotten(n) (node[n].done && !termLost && knowsLost(n) && !(recorded && older(lost, fence)))
proctype Invariant() {
	atomic { forgotten(0) || forgotten(1) -> assert(false) }
}

proctype Database() {
	byte s;
	do
	:: atomic {
		losses < LOSSES && fence.seq > 1 ->
		select(s : 1 .. fence.seq - 1);
		lose(s);
		s = 0
	}
	od
}

init {
	atomic {
		fence.seq = 1;
		copy(past[1], fence);
		run Process(0);
		run Process(1);
		run Database();
		run Invariant()
	}
}
