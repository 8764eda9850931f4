package mutants

// Reasons why simulations cannot find a mutant.
const (
	noEngine = "not simulated: SQL engines"
	noUsers  = "not simulated: users"
	noQuota  = "not simulated: the quota"
	late     = "cannot be seen by clients: an error for want of an answer does not say that the request has no effect"
)

// unseen are the mutants that simulations cannot find, by name, with the reason.
var unseen = map[string]string{
	"SQLite does not wait for the disk":                              noEngine,
	"SQLite ignores a compare-and-swap that matched no row":          noEngine,
	"MySQL replaces the chain row of another term in one statement":  noEngine,
	"a lost connection to MySQL counts as a failed commit":           noEngine,
	"missing rows of a commit on MySQL are not noticed":              noEngine,
	"a permit is judged on the users and roles before its batch":     noUsers,
	"a follower shows commits before it knows their users and roles": noUsers,
	"the feed does not say which users and roles it needs":           noUsers,
	"attached keys are not noted for the verdict on a lease":         noUsers,
	"the failure branch of a transaction needs no permission":        noUsers,
	"a permit of older users and roles is accepted for a write":      noUsers,
	"a read is answered although users or roles changed during it":   noUsers,
	"the size that was read replaces what was written since":         noQuota,
	"a write that reaches the quota exactly is accepted":             noQuota,
	"a request that is too large fails its whole batch":              "not simulated: requests that are too large for the database",
	"a policy uses a lease that has ended":                           "not simulated: TTL policies",
	"the last fragment says that more follow":                        "not simulated: answers larger than a fragment",
	"a request that was left in the queue is executed":               late,
	"an abandoned request of a full batch is executed in the next":   late,
	"a compaction cancels a watcher whose events are being read":     "cannot be seen by clients: a compaction may cancel such a watch at any time",
	"a checkpoint rounds the remaining time down":                    "cannot be seen by clients: the grace of the next leader is longer than what rounding takes",
	"a checkpoint overwrites a renewal":                              "cannot be seen by clients: what is written is the time that remains, and no leader starts with less",
	"a new leader starts clocks without the grace":                   "cannot be seen by clients: the grace is for those that reach no leader, and is not promised",
}
