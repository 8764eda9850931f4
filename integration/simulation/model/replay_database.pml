/* What fence.pml says about the database, for runs of any length: see replay.pml. */

/* A batch has any number of revisions: those after the newest one. */
inline writes(X) { need(X.val.rev > fence.rev, NOT_NEXT) }

/* The number of a batch that a node, however long it is frozen, or the database may still come back to is not used. */
#define numbers(n, b) (node[n].batch == (b) || node[n].s.op == COMMIT && node[n].s.batch == (b))
inline nextBatch() {
	do
	:: batches = (batches % BATCHES) + 1;
		room = numbers(0, batches) || numbers(1, batches) || numbers(2, batches);
		for (m : 0 .. LATE - 1) {
			room = room || late[m].op == COMMIT && late[m].batch == batches
		}
		if
		:: !room -> break
		:: else
		fi
	od;
	landed = landed & ~bit(batches);
	refused = refused & ~bit(batches)
}

/* As in fence.pml. Statements that can no longer take effect, or are on their way already, take no room. */
inline postpone(X) {
	room = LATE;
	for (m : 0 .. LATE - 1) {
		if
		:: late[m].op != NONE && late[m].oseq != fence.seq -> clear(late[m])
		:: else
		fi;
		if
		:: late[m].op == NONE && room == LATE -> room = m
		:: late[m].op == X.op && late[m].oseq == X.oseq && late[m].batch == X.batch && same(late[m].val, X.val) ->
			room = LATE + 1;
			break
		:: else
		fi
	}
	if
	:: room > LATE || X.oseq != fence.seq
	:: else ->
		need(room < LATE, TOO_MANY_LATE);
		late[room].op = X.op; late[room].oseq = X.oseq; late[room].oterm = X.oterm;
		copy(late[room].val, X.val); late[room].batch = X.batch
	fi;
	room = 0
}
