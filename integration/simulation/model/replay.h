/* The records of a run, and what the search reports. replay.go writes the file and reads the report. */

struct record { int kind, node, seq, term, rev, att, oseq, oterm, arg, elapsed; };
static struct record *table, first;
static int records;

static int deepest = -1; /* the record that no way has come past */
static int reasons[16], reason_count;
static int is_accepted;

static void report(void) {
	int i;
	if (is_accepted) {
		printf("accepted\n");
		return;
	}
	printf("refused %d", deepest);
	for (i = 0; i < reason_count; i++) {
		printf(" %d", reasons[i]);
	}
	printf("\n");
}

static int next(FILE *f, struct record *r) {
	return fscanf(f, "%d %d %d %d %d %d %d %d %d %d", &r->kind, &r->node, &r->seq, &r->term, &r->rev, &r->att, &r->oseq, &r->oterm,
		&r->arg, &r->elapsed) == 10;
}

/* The first line has the value of the fence row before the first record. */
static void load(void) {
	struct record r;
	int room = 0;
	FILE *f = fopen("records", "r");
	if (!f || !next(f, &first)) {
		printf("cannot read the records\n");
		exit(2);
	}
	while (next(f, &r)) {
		if (records == room) {
			room = room ? 2 * room : 1024;
			table = realloc(table, room * sizeof r);
		}
		table[records++] = r;
	}
	fclose(f);
	atexit(report);
}

static void refused_because_at(int pc, int reason) {
	int i;
	if (pc > deepest) {
		deepest = pc;
		reason_count = 0;
	}
	if (pc < deepest) {
		return;
	}
	for (i = 0; i < reason_count; i++) {
		if (reasons[i] == reason) {
			return;
		}
	}
	if (reason_count < (int)(sizeof reasons / sizeof reasons[0])) {
		reasons[reason_count++] = reason;
	}
}
#define refused_because(reason) refused_because_at(now.pc, reason)

static void accepted(void) {
	is_accepted = 1;
	exit(0);
}

#define less(count, by) ((count) > (by) ? (count) - (by) : 0)
#define more(count, by) ((count) + (by) < LEASE ? (count) + (by) : LEASE)

/* Reads the next record, and lets the time pass that is between it and the one before. */
#define fetch(now_) do { \
	struct record *r = &table[(now_)->pc]; \
	int i; \
	(now_)->kind = r->kind; (now_)->w = r->node; (now_)->oseq = r->oseq; (now_)->oterm = r->oterm; (now_)->arg = r->arg; \
	(now_)->rec.seq = r->seq; (now_)->rec.term = r->term; (now_)->rec.rev = r->rev; (now_)->rec.att = r->att; \
	for (i = 0; i < 3; i++) { \
		if ((now_)->node[i].lease > 0 && (now_)->floor[i] > 0) { (now_)->leased[i] = 1; } \
		(now_)->node[i].lease = less((now_)->node[i].lease, r->elapsed); \
		(now_)->node[i].wait = less((now_)->node[i].wait, r->elapsed); \
		(now_)->node[i].foundWait = less((now_)->node[i].foundWait, r->elapsed); \
		if ((now_)->node[i].s.op) { (now_)->node[i].age = more((now_)->node[i].age, r->elapsed); } \
		if ((now_)->node[i].look) { (now_)->node[i].lookAge = more((now_)->node[i].lookAge, r->elapsed); } \
	} \
} while (0)
