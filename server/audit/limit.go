package audit

import (
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

const (
	// sourceRate is how many events a second of one kind are recorded of one source that can cause
	// them without permission. sourceBurst is how many of them at once.
	sourceRate  = 2
	sourceBurst = 50
	// addressRate and addressBurst are the same for all sources together that are not
	// authenticated: there may be any number of them.
	addressRate  = 20
	addressBurst = 500
	// maxSources bounds the sources of a kind that are remembered: so many that are authenticated,
	// and so many that are not.
	maxSources = 1024
	// suppressedInterval is the least time between two lines that count suppressed events.
	suppressedInterval = 10 * time.Second
)

// Source is what caused an event: the user or the common name of the certificate of an
// authenticated client, else its address. Each has a limit, so that no client can hide what
// another one does.
type Source struct {
	Name          string
	Authenticated bool
}

// limit bounds the rate of events of one kind, and counts the others. Log.mu guards it.
type limit struct {
	users, addresses *simplelru.LRU[string, *rate.Limiter]
	all              *rate.Limiter // of addresses
	missing          int64         // events suppressed since the last line about them
	since            time.Time     // when the first of them was
	by               []string      // the first sources of them
	reported         time.Time
}

func newLimit() *limit {
	limiters := func() *simplelru.LRU[string, *rate.Limiter] {
		m, err := simplelru.NewLRU[string, *rate.Limiter](maxSources, nil)
		if err != nil {
			panic(err) // the size is not positive
		}
		return m
	}
	return &limit{users: limiters(), addresses: limiters(), all: rate.NewLimiter(addressRate, addressBurst)}
}

// admits reports whether an event of a source may be recorded at now.
func (l *limit) admits(now time.Time, source Source) bool {
	sources := l.addresses
	if source.Authenticated {
		sources = l.users
	}
	b, ok := sources.Get(source.Name)
	if !ok {
		b = rate.NewLimiter(sourceRate, sourceBurst)
		sources.Add(source.Name, b)
	}
	admitted := b.AllowN(now, 1)
	if admitted && !source.Authenticated {
		// Half is left for addresses that were quiet, else a flood from many addresses would hide them.
		admitted = (b.TokensAt(now) >= sourceBurst-1 || l.all.TokensAt(now) >= addressBurst/2) && l.all.AllowN(now, 1)
	}
	if !admitted {
		l.suppress(now, source)
	}
	return admitted
}

func (l *limit) suppress(now time.Time, source Source) {
	if l.missing == 0 {
		l.since, l.by = now, nil
	}
	l.missing++
	if len(l.by) < maxList && !slices.Contains(l.by, source.Name) {
		l.by = append(l.by, source.Name)
	}
}

// due returns how many events a line has to count at now, since when, and the first of their
// sources; 0 if there is no line to write yet.
func (l *limit) due(now time.Time, last bool) (missing int64, since time.Time, by []string) {
	if l.missing == 0 || !last && now.Sub(l.reported) < suppressedInterval {
		return 0, since, nil
	}
	missing = l.missing
	l.missing, l.reported = 0, now
	return missing, l.since, l.by
}
