package member

import "errors"

// Errors of changes.
var (
	// ErrNotFound: no member has this id.
	ErrNotFound = errors.New("member: member not found")
	// ErrPeerURLExists: another member has one of these peer URLs.
	ErrPeerURLExists = errors.New("member: peer URL already exists")
	// ErrBadURLs: no URLs, not ones that etcd takes, or too many bytes.
	ErrBadURLs = errors.New("member: member URLs are invalid")
	// ErrNotLearner: only learners can be promoted.
	ErrNotLearner = errors.New("member: not a learner")
	// ErrLearners: members are never learners.
	ErrLearners = errors.New("member: learners are not supported: every member reads the database itself and has " +
		"nothing to learn")
	// ErrRunning: another process runs as this member, so that this one cannot join.
	ErrRunning = errors.New("member: another process runs as this member")
	// ErrProtocol: this program and the one of another member have no protocol in common.
	ErrProtocol = errors.New("member: a member speaks another protocol")
	// ErrNotEnoughStarted: the last member that is known to be alive cannot be removed, and
	// members cannot be added while too many have not started.
	ErrNotEnoughStarted = errors.New("member: not enough members have started")
)

// How a Registry ends. Changes asked of one that has ended fail with the same.
var (
	// ErrRemoved: this member was removed. The node must stop serving; a
	// restart joins as a new member.
	ErrRemoved = errors.New("member: this member was removed from the cluster")
	// ErrReplaced: another process was started under this member's name.
	ErrReplaced = errors.New("member: another process was started under this member's name")
)
