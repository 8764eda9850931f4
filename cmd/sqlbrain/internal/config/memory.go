package config

import (
	"math"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// DefaultMemory is the resident memory, in bytes, that the default sizes of the caches are for. The server
	// stays below it with ten thousand objects of 1 KiB under load.
	DefaultMemory = 112 << 20
	// LeastMemory is the least memory, in bytes, that a server works with.
	LeastMemory = 64 << 20

	// program is the memory of a server with empty caches: code, stacks, connections, requests.
	program = 48 << 20
	// indexEntry is the memory of an entry of the index cache, pageCache the default of SQLite's pages.
	indexEntry = 256
	pageCache  = 4 << 20
	// More than so many times its default serves no purpose for the recent events, and for SQLite's pages, which
	// the operating system keeps too. The others hold what is requested again.
	mostTimes = 16
	// The caches leave a part of the limit of a container to what is not counted: buffers of the kernel, say.
	reserve = 10
)

// Memory is how much memory the process is to use, in bytes.
type Memory struct {
	Aim   int64 // resident memory with full caches
	Limit int64 // at which garbage is collected at any price; 0: none
	Pages int64 // of Aim, what is outside of Go: SQLite's pages
}

// FitMemory chooses the sizes of the caches that no flag sets, and of the queues of writes, and of watchers, answers
// and requests together: they are for memory-limit-bytes, or for what the container of the process may use, in bytes,
// or for DefaultMemory if that is 0. Call it after Load.
func (s *Settings) FitMemory(container int64) Memory {
	m := Memory{Aim: DefaultMemory}
	switch {
	case s.MemoryLimit > 0:
		m.Aim, m.Limit = s.MemoryLimit, s.MemoryLimit
	case container > 0:
		m.Limit = max(container-container/reserve, LeastMemory)
		m.Aim = m.Limit
	}
	times := float64(max(m.Aim-s.givenCaches(), LeastMemory)-program) / (DefaultMemory - program)
	defaults, answers, requests := replica.DefaultConfig(), server.DefaultConfig().AnswerBytes,
		server.DefaultConfig().RequestBytes
	scale := func(name string, size *int, standard int, most float64) {
		if !s.Given(name) {
			*size = int(float64(standard) * min(times, most))
		}
	}
	scale("object-cache-bytes", &s.Replica.RecordCache, defaults.RecordCache, math.Inf(1))
	scale("index-cache-entries", &s.Replica.Write.IndexCache, defaults.Write.IndexCache, math.Inf(1))
	scale("watch-ring-bytes", &s.Replica.Watch.RingBytes, defaults.Watch.RingBytes, mostTimes)
	s.Replica.Write.QueueBytes = int(float64(defaults.Write.QueueBytes) * min(times, mostTimes))
	s.Server.AnswerBytes = int(float64(answers) * min(times, mostTimes))
	s.Server.RequestBytes = int(float64(requests) * min(times, mostTimes))
	s.Replica.Watch.QueuedBytes = int(float64(defaults.Watch.QueuedBytes) * min(times, mostTimes))
	s.Store.PageCache = int64(pageCache * min(times, mostTimes))
	if u := s.URL(); u != nil && u.Dialect == sqlstore.DialectSQLite {
		m.Pages = 2 * s.Store.PageCache
	}
	return m
}

// givenCaches returns the memory of the caches whose sizes were given, in bytes.
func (s *Settings) givenCaches() int64 {
	sum := 0.0
	for name, bytes := range map[string]float64{
		"object-cache-bytes":  float64(s.Replica.RecordCache),
		"index-cache-entries": indexEntry * float64(s.Replica.Write.IndexCache),
		"watch-ring-bytes":    float64(s.Replica.Watch.RingBytes),
	} {
		if s.Given(name) {
			sum += bytes
		}
	}
	return int64(min(sum, math.MaxInt64/2))
}

func (s *Settings) checkMemory() error {
	given := s.givenCaches()
	if least := LeastMemory + given; s.MemoryLimit > 0 && s.MemoryLimit < least {
		return s.invalid("memory-limit-bytes", "%d is too small, at least %d is needed, with %d for the sizes of caches "+
			"that were given",
			s.MemoryLimit, least, given)
	}
	return nil
}
