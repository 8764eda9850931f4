// Package timing has the durations by which the members of a cluster notice that a leader
// is gone, replace it, and keep its answers true in the meantime. They are in one place
// because they depend on each other: the second half of the file has the relations, and a
// value that breaks one does not compile.
//
// The package depends on nothing. The packages that use a constant are named with it.
package timing

import "time"

// Fencing (packages fence and replica).
const (
	// ReadLease is how long a leader may answer from memory after the start of its last
	// successful read or change of the fence row.
	ReadLease = 100 * time.Millisecond
	// TakeoverWait is how long a new leader serves nothing after its change of the fence row:
	// then its predecessor's read lease is over, on clocks that differ in speed by less than
	// half. It changed the row after anything its predecessor can have seen there.
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
	// MemberList is how often a member reads the rows of all members. Changes other than heartbeats are seen earlier,
	// by a poll.
	MemberList = 10 * time.Second
	// MissedHeartbeats is after how many heartbeats without a change a member counts as
	// not alive: one may be late, and one may fall between two lists.
	MissedHeartbeats = 3
	// RefreshPause is the least time between two lists that Refresh asks for.
	RefreshPause = 100 * time.Millisecond
)

// The lock row, and challenges (package member).
const (
	// Poll is how often a member reads the lock row and its own row. The holder of the lock does so a Lead-th part
	// earlier, so that followers can poll when a heartbeat of its feed comes.
	Poll = 500 * time.Millisecond
	Lead = 10
	// FastPoll is the same for a member that does not hear the holder, and for the holder during FastPolls after the
	// end of one of its feeds.
	FastPoll  = 100 * time.Millisecond
	FastPolls = time.Minute
	// Unheard is how long a member hears nothing of the holder before it challenges it: one heartbeat of its feed is
	// missing, and the next one is about to be.
	Unheard = 900 * time.Millisecond
	// MissedPolls is for how many of its intervals the holder may leave a challenge unanswered, and Answer how long
	// that is. It is counted in fast polls if the holder knows that the challenger's feed has ended: its address
	// refuses connections, and the feed worked within FeedForgotten.
	MissedPolls   = 3
	Answer        = MissedPolls * (Poll - Poll/Lead)
	FeedForgotten = 30 * time.Second
	// LongestAnswer is the most that an operator may set instead of Answer.
	LongestAnswer = time.Hour
	// ChallengeAgain is how long after an answer a holder that is still not heard is challenged again.
	ChallengeAgain = 10 * time.Second
	// AnswerTrips is how many round trips to the database an answer takes at most in addition, LongestPause a bound on
	// them: the poll that finds the challenge, and the write, perhaps on a connection that asks first which server it
	// reaches. The longest recent round trip but one counts, of both members.
	AnswerTrips  = 4
	LongestPause = time.Second
	// PollTimeout bounds a poll, and WriteTimeout a write of the holder, against a database that hangs. A statement
	// on a new connection takes ConnectTrips round trips: TCP, TLS, the login, the settings of the session, which
	// server it is, and what is to be done. The bounds become as long if the database is far away, up to FarTimeout.
	PollTimeout  = 500 * time.Millisecond
	WriteTimeout = 750 * time.Millisecond
	ConnectTrips = 16
	FarTimeout   = time.Second
	// ReleaseTimeout bounds the release of the lock.
	ReleaseTimeout = 1500 * time.Millisecond
	// StandBack is for how long a member that failed to lead does not take the lock, doubled each time up to
	// LongestStandBack.
	StandBack        = time.Second
	LongestStandBack = 16 * time.Second
)

// The leader's feed (package feed).
const (
	// FeedHeartbeat is the longest time between two messages of a feed. A leader sends them when it has polled.
	FeedHeartbeat = 500 * time.Millisecond
	// FeedSilence is how long a feed may bring nothing before the follower ends it.
	FeedSilence = 1500 * time.Millisecond
)

// Following (packages node and replica).
const (
	// ReadLog is how often a follower without a feed reads the log.
	ReadLog = 100 * time.Millisecond
	// TablePoll is how often a follower reads the fence row and the alarms, whatever the
	// feed brings. TablePollTimeout bounds one read.
	TablePoll        = time.Second
	TablePollTimeout = 5 * time.Second
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

// The relations: a negative constant cannot be converted to uint.
const (
	// The successor waits out the read lease, with a margin for the speed of clocks.
	_ = uint(TakeoverWait - ReadLease - ReadLease/2)
	// A new leader is as patient with the database as a follower. If it is cut off from the
	// database altogether, it loses the lock first. Its wait is not silence of the database.
	_ = uint(TakeoverSilence - TablePollTimeout)
	_ = uint(TakeoverSilence - Unheard - Answer - LongestPause)
	_ = uint(TakeoverSilence - 2*TakeoverWait)
	// A call to the old leader ends after the new one may serve, so it can be repeated.
	_ = uint(CutOff - 2*TakeoverWait)
	// A renewal that waits for the old leader can be repeated before the lease ends.
	_ = uint(LeaseGrace - CutOff - FastPoll)
	// A poll or an answer that hangs leaves time for another one before the deadline.
	_ = uint(Answer - PollTimeout - WriteTimeout)
	// A holder polls often for longer than a follower counts on it, and than what the follower begins then may take.
	_ = uint(FastPolls - FeedForgotten - FeedSilence - TablePollTimeout)
	// A heartbeat of a feed may be late before the holder is challenged, and more so before the feed ends.
	_ = uint(Unheard - FeedHeartbeat - FastPoll)
	_ = uint(FeedSilence - 3*FeedHeartbeat)
	// No heartbeat of a member is overlooked.
	_ = uint(MemberHeartbeat - MemberList)
	// A feed that broke is opened again, or the log is read instead, before the follower
	// reports that there is no leader. A leader that is silent is replaced before that, and one that steps down in
	// order is followed by another one.
	_ = uint(LeaderSilence - FeedSilence - TablePoll)
	_ = uint(LeaderSilence - Unheard - Answer - ReadLog)
	_ = uint(LeaderSilence - 2*Handover)
	// An attempt to connect to a leader ends, and the next one begins, before the follower
	// reports that there is no leader.
	_ = uint(LeaderSilence - PeerConnect - PeerReconnect)
	// A connection that brings nothing is ended by the feed's silence before a ping ends it.
	_ = uint(PeerPing + PeerPingTimeout - FeedSilence)
	_ = uint(PeerPing - 2*PeerPingMin)
	// A handshake that waits for the members to be read again, after a read that is under way, has time left.
	_ = uint(PeerHandshake - 2*PeerRefresh)
	_ = uint(PeerRefresh - 2*(RefreshPause+PollTimeout))
	// A follower whose feed broke has read the log before the answer to a forwarded write
	// stops waiting for it.
	_ = uint(ApplyWait - FeedSilence - TablePoll - ReadLog)
)
