// Package timing has the durations by which the members of a cluster notice that a leader
// is gone, replace it, and keep its answers true in the meantime. They are in one place
// because they depend on each other: the second half of the file has the relations, and a
// value that breaks one does not compile.
//
// The package depends on nothing. The packages that use a constant are named with it.
package timing

import "time"

// Fencing (packages fence and backend).
const (
	// ReadLease is how long a leader may answer from memory after the start of its last
	// successful look at, or change of, the fence row.
	ReadLease = 100 * time.Millisecond
	// TakeoverWait is how long a new leader serves nothing after its change of the fence row
	// row: then its predecessor's read lease is over, on clocks that differ in speed by less
	// than half. It changed the row after anything its predecessor can have seen there.
	// For the same reason, and as long, a follower does not show what it found in the table
	// and the leader has not reported.
	TakeoverWait = ReadLease + ReadLease/2
	// TakeoverSilence is how long the database may answer nothing to a new leader before the
	// leader releases the lock, so that another member can try.
	TakeoverSilence = 5 * time.Second
	// Handover bounds how long a leader that stops on request continues with what is under
	// way, and writes lease checkpoints.
	Handover = time.Second
)

// Member rows (package member).
const (
	// MemberHeartbeat is the longest time between heartbeats of a member. It begins with
	// FirstHeartbeat, and is doubled each time, so that others soon know that it is alive.
	MemberHeartbeat = 30 * time.Second
	FirstHeartbeat  = 2 * time.Second
	// MemberLook is how often a member reads the rows of all members, CalmMemberLook how often if nothing is
	// expected to change around it. Changes other than heartbeats are seen earlier, by a glance.
	MemberLook     = 2 * time.Second
	CalmMemberLook = 10 * time.Second
	// MissedHeartbeats is after how many heartbeats without a change a member counts as
	// not alive: one may be late, and one may fall between two looks.
	MissedHeartbeats = 3
	// Answer is the longest time between looks of a member for a challenge in its row.
	Answer = 100 * time.Millisecond
	// CalmAnswer is the same for a member in whose surroundings nothing is expected to change.
	CalmAnswer = 500 * time.Millisecond
	// MissedAnswers is after how many answer intervals without an answer a process may be
	// replaced by another one of its name, MissedLongAnswers after how many long ones.
	MissedAnswers     = 10
	MissedLongAnswers = 3
	// Challenges is how many challenges a process leaves unanswered before it counts as silent. They
	// are at most ChallengeInterval apart. If the database is far away, they are fewer, and farther
	// apart: AnswerTrips round trips, up to LongestPause. A process swaps the row in which it found a
	// challenge, perhaps on a connection that asks first which server it reaches. If that meets
	// another challenge, it reads the row again, and has to swap it before the next one comes.
	Challenges        = 4
	ChallengeInterval = 250 * time.Millisecond
	AnswerTrips       = 4
	LongestPause      = time.Second
	// RefreshPause is the least time between two looks at the table that Refresh asks for.
	RefreshPause = 100 * time.Millisecond
	// ConnectTrips is how many round trips to the database a heartbeat or a look takes at most that needs a new
	// connection: TCP, TLS, the login, the settings of the session, which server it is, and what is to be done. They are
	// given that long if the database is so far away that their bounds are shorter, but at most half of the lease, and at
	// most the renew deadline.
	ConnectTrips = 16
	// HeartbeatTimeout bounds one heartbeat against a database that hangs, GlanceTimeout
	// one look for challenges and at the lock row, so that the next one has time.
	HeartbeatTimeout = 5 * time.Second
	GlanceTimeout    = 500 * time.Millisecond
)

// The lock (package member): the defaults of flags.
const (
	// Lease is for how long the holder of the lock must be silent before another member
	// takes the lock.
	Lease = 2 * time.Second
	// RenewDeadline bounds the release of the lock; half of it bounds one heartbeat of the holder, unless the database is
	// far away: see ConnectTrips.
	RenewDeadline = 1500 * time.Millisecond
	// RetryPeriod is the time between heartbeats of the holder, QuietHeartbeat that of a holder
	// that all other members hear by its feed.
	RetryPeriod    = 250 * time.Millisecond
	QuietHeartbeat = 10 * time.Second
	// Unheard is for how long a holder that was challenged counts as not heard by all.
	Unheard = 20 * time.Second
	// FollowerHurries is for how long after it heard the holder a follower expects that the holder knows that its feed
	// has ended, and answers a challenge soon. FollowerLost is for how long the holder does so.
	FollowerHurries = 30 * time.Second
	FollowerLost    = time.Minute
	// DoubtAfter is which part of the lease a holder must be silent before a candidate challenges
	// it, and ChallengeShare for which part the challenge must be unanswered when the lock expires.
	DoubtAfter     = 2
	ChallengeShare = 4
	// RetryMargin is how many retry periods, in percent, must be below the renew deadline.
	RetryMargin = 120
)

// The leader's feed (package feed).
const (
	// FeedHeartbeat is the longest time between two messages of a feed. A leader sends them when it has looked at the
	// lock, and looks a Lead-th part earlier than its row says, so that followers can look when one comes.
	FeedHeartbeat = 500 * time.Millisecond
	Lead          = 10
	// FeedSilence is how long a feed may bring nothing before the follower ends it.
	FeedSilence = 1500 * time.Millisecond
)

// Following (packages node and backend).
const (
	// ReadLog is how often a follower without a feed reads the log.
	ReadLog = 100 * time.Millisecond
	// Look is how often a follower looks at the fence row and the alarms, whatever the
	// feed brings. LookTimeout bounds one look.
	Look        = time.Second
	LookTimeout = 5 * time.Second
	// LeaderSilence is how long a follower that hears nothing of the leader, or of commits,
	// still reports that there is a leader, and that it knows of commits.
	LeaderSilence = 3 * time.Second
	// CutOff is how long calls may wait for the answer of a leader after another member
	// has taken the lock.
	CutOff = 500 * time.Millisecond
	// Probe is how often a member is probed again whose last probe failed. ProbeTimeout
	// bounds one probe.
	Probe        = 30 * time.Second
	ProbeTimeout = 5 * time.Second
)

// Connections between members (packages link and server).
const (
	// PeerPing is how long a connection may be idle before one side sends a ping. gRPC's
	// clients ping at most every 10 s. An acceptor closes a connection that is pinged more
	// often than every PeerPingMin.
	PeerPing    = 10 * time.Second
	PeerPingMin = 5 * time.Second
	// PeerPingTimeout is how long the answer to a ping, or to other data, may take before
	// the connection counts as broken.
	PeerPingTimeout = 3 * time.Second
	// PeerConnect bounds one attempt to connect. PeerReconnect is the longest pause
	// between two attempts.
	PeerConnect   = 2 * time.Second
	PeerReconnect = 500 * time.Millisecond
	// PeerHandshake bounds the handshake of an acceptor, and PeerRefresh the part of a
	// handshake in which the members are read again.
	PeerHandshake = 10 * time.Second
	PeerRefresh   = 2 * time.Second
)

// Forwarding (package forward).
const (
	// ApplyWait bounds how long the leader's answer to a forwarded write waits until this
	// member has applied the write.
	ApplyWait = 3 * time.Second
)

// Leases of clients (package lease).
const (
	// LeaseGrace is the time that a new leader adds to the leases in the table. Clients cannot
	// renew until they, or the members to which they are connected, have found the new leader.
	// It is etcd's default election timeout, by which etcd's new leaders extend leases.
	LeaseGrace = time.Second
)

// Suspicion (package node).
const (
	// DeathSilence is for how long a leader that refuses connections must leave challenges
	// unanswered before its lock is taken.
	DeathSilence = 240 * time.Millisecond
	// A leader that refuses connections and answers is not suspected again for Respite,
	// doubled each time up to LongestRespite, until a feed works again.
	Respite        = time.Second
	LongestRespite = time.Minute
)

// The relations: a negative constant cannot be converted to uint.
const (
	// The successor waits out the read lease, with a margin for the speed of clocks.
	_ = uint(TakeoverWait - ReadLease - ReadLease/2)
	// A new leader is as patient with the database as a follower. If it is cut off from the
	// database altogether, it loses the lock first. Its wait is not silence of the database.
	_ = uint(TakeoverSilence - LookTimeout)
	_ = uint(TakeoverSilence - Lease - RenewDeadline)
	_ = uint(TakeoverSilence - 2*TakeoverWait)
	// A call to the old leader ends after the new one may serve, so it can be repeated.
	_ = uint(CutOff - 2*TakeoverWait)
	// A renewal that waits for the old leader can be repeated before the lease ends.
	_ = uint(LeaseGrace - CutOff - Answer)
	// A leader that is suspected has two chances to see a challenge and to answer it, and
	// cannot be suspected again at once.
	_ = uint(DeathSilence - 2*Answer)
	_ = uint(Respite - 2*DeathSilence)
	// Replacing a process of the same name takes more proof than to follow another leader.
	_ = uint(MissedAnswers*Answer - 2*DeathSilence)
	// Silence is more challenges than the least, and each leaves time for an answer.
	_ = uint(ChallengeInterval - 2*Answer)
	_ = uint(Challenges*ChallengeInterval - MissedAnswers*Answer)
	// The holder of the lock sends several heartbeats in a lease, and one that hangs leaves
	// time for another one on another connection.
	_ = uint(Lease - 6*RetryPeriod)
	_ = uint(Lease - RenewDeadline - RetryPeriod)
	_ = uint(RenewDeadline - RetryPeriod*RetryMargin/100 - 1)
	_ = uint(RenewDeadline/2 - GlanceTimeout)
	// The same if the database is far away, and one may take half of the lease.
	_ = uint(RenewDeadline - Lease/2)
	// A candidate that hears the holder by its feed has no doubts, although a message is late.
	_ = uint(Lease/DoubtAfter - 2*FeedHeartbeat)
	// A holder that is in doubt looks for the challenge twice before its lock expires.
	_ = uint(Lease/ChallengeShare - 2*Answer)
	_ = uint(Lease - Lease/DoubtAfter - Lease/ChallengeShare - 2*Answer)
	// The same if it is calm: it looks within the time that its row says, twice before the lock expires.
	_ = uint(Lease - Lease/DoubtAfter - 2*CalmAnswer)
	// A holder looks often for longer than a follower may be in a hurry, and what that begins then may take.
	_ = uint(FollowerLost - FollowerHurries - FeedSilence - LookTimeout - DeathSilence)
	// A holder that is not heard is challenged rarely.
	_ = uint(Unheard - 10*Lease/DoubtAfter)
	// Candidates and the holder look several times in a retry period.
	_ = uint(RetryPeriod - 2*Answer)
	// A leader's lock expires before the member counts as not alive.
	_ = uint(MissedHeartbeats*MemberHeartbeat - Lease)
	// No heartbeat of a member is overlooked.
	_ = uint(MemberHeartbeat - CalmMemberLook)
	// A heartbeat of a feed may be late.
	_ = uint(FeedSilence - 3*FeedHeartbeat)
	// A feed that broke is opened again, or the log is read instead, before the follower
	// reports that there is no leader. So does a leader that steps down in order.
	_ = uint(LeaderSilence - FeedSilence - Look)
	_ = uint(LeaderSilence - Lease - ReadLog)
	_ = uint(LeaderSilence - 2*Handover)
	// An attempt to connect to a leader ends, and the next one begins, before the follower
	// reports that there is no leader.
	_ = uint(LeaderSilence - PeerConnect - PeerReconnect)
	// A connection that brings nothing is broken by the feed's silence before by a ping.
	_ = uint(PeerPing + PeerPingTimeout - FeedSilence)
	_ = uint(PeerPing - 2*PeerPingMin)
	// A handshake that waits for the members to be read again has time left.
	_ = uint(PeerHandshake - 2*PeerRefresh)
	_ = uint(PeerRefresh - RefreshPause - GlanceTimeout)
	// A follower whose feed broke has read the log before the answer to a forwarded write
	// stops waiting for it.
	_ = uint(ApplyWait - FeedSilence - Look - ReadLog)
)

// RetryFits reports whether a renew deadline leaves time for RetryMargin of a retry period.
func RetryFits(retry, renew time.Duration) bool {
	return retry < renew/RetryMargin*100 // RetryMargin times a long period would overflow
}
