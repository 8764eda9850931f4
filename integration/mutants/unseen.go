package mutants

// Reasons why simulations cannot find several mutants.
const (
	noEngine = "not simulated: SQL engines"
	noQuota  = "not simulated: the quota"
	noOthers = "not simulated: rows that another program changes; otherwise the table has what the leader has in memory"
	noServer = "not simulated: MySQL servers that fail over; the database is simulated below sqlstore"
	noMixed  = "not simulated: members of several versions"
	noBytes  = "not simulated: as many bytes as a queue may hold"
	noPieces = "not simulated: leases with more than 2,000 keys, which are revoked in pieces"
	noLength = "not simulated: takeovers of more than 5 s; statements that the database does not answer end by then"
	late     = "cannot be seen by clients: an error for want of an answer does not say that the request has no effect"
)

// Unseen returns why a judge cannot find a mutant, "" if it may.
func Unseen(judge string, m Mutant) string {
	if judge != simulation {
		return ""
	}
	return unseen[m.Name]
}

// unseen are the mutants that simulations cannot find, by name, with the reason.
var unseen = map[string]string{
	"SQLite does not wait for the disk":                                              noEngine,
	"SQLite ignores a compare-and-swap that matched no row":                          noEngine,
	"MySQL replaces the chain row of another term in one statement":                  noEngine,
	"a lost connection to MySQL counts as a failed commit":                           noEngine,
	"missing rows of a commit on MySQL are not noticed":                              noEngine,
	"a read is answered although users or roles changed during it":                   "cannot be seen by clients: a read is judged once its revision is known, so that what changed during it follows it",
	"the size that was read replaces what was written since":                         noQuota,
	"a write that reaches the quota exactly is accepted":                             noQuota,
	"a request that is too large fails its whole batch":                              "not simulated: requests that are too large for the database",
	"a policy uses a lease that has ended":                                           "not simulated: TTL policies",
	"the last fragment says that more follow":                                        "not simulated: answers larger than a fragment",
	"a request that was left in the queue is executed":                               late,
	"an abandoned request of a full batch is executed in the next":                   late,
	"a compaction cancels a watcher whose events are being read":                     "cannot be seen by clients: a compaction may cancel such a watch at any time",
	"a checkpoint rounds the remaining time down":                                    "cannot be seen by clients: the grace of the next leader is longer than what rounding takes",
	"a checkpoint overwrites a renewal":                                              "cannot be seen by clients: what is written is the time that remains, and no leader starts with less",
	"a new leader starts clocks without the grace":                                   "cannot be seen by clients: the grace is for those that reach no leader, and is not promised",
	"a retry evaluates on the index that conflicted":                                 noOthers,
	"a retry evaluates on the records that were stale":                               noOthers,
	"an index row of a live key may be missing":                                      noOthers,
	"a conflict of another row counts as a commit":                                   noOthers,
	"a takeover that the database does not answer does not end":                      noLength,
	"rows do not count as answers to a takeover":                                     noLength,
	"the limit of a takeover does not begin anew with an answer":                     noLength,
	"a takeover does not say that the database was silent":                           "cannot be seen by clients: only the text of an error in the log changes",
	"the newest revision is published twice":                                         "cannot be seen by clients: a node hands each revision to its hub once, so that the hub has none to pass over",
	"renewals continue after the last checkpoint of a handover":                      "cannot be seen by clients: such a renewal is written by a commit of its own, or is refused once there are none",
	"a leader keeps its read lease after it has resigned":                            "not simulated: a goroutine that stops between two instructions; later reads find that the node does not lead",
	"a conflict of a presumed key is not judged":                                     "cannot be seen by clients: the batch is evaluated on the table either way, and only costs more",
	"history may end in the middle of a revision":                                    "not simulated: 8 MiB of history",
	"a key may be attached to a lease that is being revoked":                         noPieces,
	"a follower applies updates with a gap":                                          "cannot be seen by clients: a feed has every revision after the one that it is asked for, so that there is no gap",
	"the frontier may go back":                                                       "cannot be seen by clients: no caller asks for that",
	"watchers read the revision before a gap again":                                  "cannot be seen by clients: what a gap leaves out is compacted, so that its watchers are cancelled",
	"the revision that a follower may show goes back":                                "cannot be seen by clients: what was found in the table is shown 150 ms later at the latest",
	"the chain row is not raised after an unknown outcome":                           "cannot be seen by clients: the leader finds a value in its next commit that it did not write, and another leadership begins",
	"a lost revision is not noticed if the sequence rose":                            "cannot be seen by clients: a node compares the content of its newest revisions with the table too",
	"two commits that differ in a lease look the same":                               "not simulated: requests that put the same value",
	"a recovered database counts as one that lost data":                              "cannot be seen by clients: a recovery compacts what a node could compare",
	"a node does not remember the revision at which it opened":                       "not simulated: a member that starts in the moment before a loss, while the loss leaves its start in the table",
	"a node without revisions to compare keeps its memory":                           "not simulated: a compaction of revisions that a node remembers and the database has lost",
	"other connections stay with a server that is not the primary":                   noServer,
	"a point read does not ask for the primary":                                      noServer,
	"a point read is answered by a server that is not the primary":                   noServer,
	"a connection that was made for another caller is not checked":                   noServer,
	"a connection counts as dialled when it is ready":                                noServer,
	"an error of COMMIT on SQLite counts as a failed commit":                         noEngine,
	"a flush of SQLite's log that failed in the kernel counts as done":               noEngine,
	"SQLite leaves a failed commit open":                                             noEngine,
	"pages of a commit that failed on SQLite are written after the lock is released": noEngine,
	"verdicts that requests wait with may be forgotten":                              "not simulated: more than 512 leases at a time",
	"a stream's watchers that are behind are served one after the other":             "not simulated: how long watches wait for each other",
	"a program joins members that need a newer protocol":                             noMixed,
	"a program joins members whose protocol it does not know":                        noMixed,
	"a leader feeds a follower with another protocol":                                noMixed,
	"a follower follows a leader with another protocol":                              noMixed,
	"large requests wait in a full queue":                                            noBytes,
	"a request that found no room keeps it":                                          noBytes,
	"the queue of a watcher has no bound in bytes":                                   noBytes,
	"a lease whose revocation has begun has time left":                               noPieces,
	"a renewal waits for all pieces of a revocation":                                 noPieces,
	"a lease whose revocation has begun is renewed":                                  noPieces,
	"a loss is recorded for good by a replica that lags":                             "not simulated: reads of replicas",
	"a leader is quiet although a member does not hear it":                           noMixed,
	"a glance does not see that the members have changed":                            "not simulated: members that are removed",
}
