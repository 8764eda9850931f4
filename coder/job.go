package coder

import (
	"crypto/rand"
	"encoding/binary"
)

// JobKind says what a job does with the table.
type JobKind uint8

// The kinds of jobs.
const (
	JobRestore JobKind = iota + 1 // fills the table from a snapshot, or from a running server
	JobImport                     // fills the table with the keys of kine's
	JobRevert                     // empties the table, whose keys kine's has
)

// Job is the content of the job row: the newest job that had the table to itself. Until it has ended,
// the table is incomplete, and no server serves it.
type Job struct {
	Kind  JobKind
	Ended bool
	Token [16]byte // random: it distinguishes two jobs of one kind
}

// NewJob returns a job with a new token.
func NewJob(kind JobKind) Job {
	j := Job{Kind: kind}
	_, _ = rand.Read(j.Token[:]) // it never fails
	return j
}

const jobLen = 1 + 1 + 1 + len(Job{}.Token)

// JobKey is the internal key of the job row.
func JobKey() []byte { return []byte(magicMeta + "job") }

// EncodeJob returns the job row's value:
//
//	format(1) kind(1) ended(1) token(16)
func EncodeJob(j Job) []byte {
	b := []byte{formatV1, byte(j.Kind), 0}
	if j.Ended {
		b[2] = 1
	}
	return append(b, j.Token[:]...)
}

// DecodeJob is the inverse of EncodeJob.
func DecodeJob(b []byte) (Job, error) {
	if len(b) != jobLen || b[0] != formatV1 || b[1] < byte(JobRestore) || b[1] > byte(JobRevert) || b[2] > 1 {
		return Job{}, malformed(b, "job value %x", b)
	}
	return Job{Kind: JobKind(b[1]), Ended: b[2] == 1, Token: [16]byte(b[3:])}, nil
}

// JobStepKey is the internal key of the row that every commit of an unfinished job compares and swaps.
func JobStepKey() []byte { return []byte(magicMeta + "jobstep") }

// EncodeJobStep returns the value of that row after so many commits of the job:
//
//	format(1) token(16) commits(8)
func EncodeJobStep(j Job, commits int64) []byte {
	b := append([]byte{formatV1}, j.Token[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(commits))
}
