package console

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// SampleInterval is the time between two samples, and sampleHours how long they are kept.
	SampleInterval = 10 * time.Second
	sampleHours    = 6
	maxSamples     = sampleHours * int(time.Hour/SampleInterval)
	// mostSamples bounds the samples of an answer.
	mostSamples = 180
)

// columns are the figures of a sample, in order. Histograms have a count and a sum.
var columns = slices.Concat([]string{"time", "revision", "compact_revision", "db_size", "sql.count", "sql.sum"},
	sortedValues(values), sortedValues(histograms, ".count", ".sum"))

// sortedValues returns the values of a map, sorted, each with all of the endings.
func sortedValues(of map[string]string, endings ...string) (names []string) {
	for _, name := range of {
		if len(endings) == 0 {
			names = append(names, name)
		}
		for _, ending := range endings {
			names = append(names, name+ending)
		}
	}
	slices.Sort(names)
	return names
}

// series keeps the figures of this process of the last hours, in a ring. Safe for concurrent use.
type series struct {
	mu   sync.Mutex
	rows [][]float64
	next int // where the oldest row is, once the ring is full
}

func (s *series) add(row []float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rows) < maxSamples {
		s.rows = append(s.rows, row)
		return
	}
	s.rows[s.next] = row
	s.next = (s.next + 1) % maxSamples
}

// since returns the rows from a time on, oldest first. If there are more than mostSamples, it leaves out as many
// between two others each time; counters lose nothing by that.
func (s *series) since(start float64) [][]float64 {
	s.mu.Lock()
	all := slices.Concat(s.rows[s.next:], s.rows[:s.next])
	s.mu.Unlock()
	first, _ := slices.BinarySearchFunc(all, start, func(row []float64, t float64) int {
		if row[0] < t {
			return -1
		}
		return 1
	})
	all = all[first:]
	step := (len(all) + mostSamples - 1) / mostSamples
	out := [][]float64{}
	for i := len(all) - 1; i >= 0; i -= max(step, 1) {
		out = append(out, all[i])
	}
	slices.Reverse(out)
	return out
}

// Run takes samples until ctx ends. It is called once.
func (h *Handler) Run(ctx context.Context) {
	tick := time.NewTicker(SampleInterval)
	defer tick.Stop()
	for {
		if row, err := h.sample(); err != nil {
			h.cfg.Logger.Warn("the console has no figures for its plots", "error", err)
		} else {
			h.series.add(row)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample returns the columns now.
func (h *Handler) sample() ([]float64, error) {
	m, err := gather(h.cfg.Metrics)
	if err != nil {
		return nil, err
	}
	st := h.cfg.Node.Status()
	at := map[string]float64{
		"time": float64(time.Now().UnixMilli()), "revision": float64(st.Revision),
		"compact_revision": float64(max(st.CompactRevision, 0)),
		"db_size":          float64(st.DBSize),
	}
	for _, s := range m.SQL {
		at["sql.count"] += float64(s.Count)
		at["sql.sum"] += s.Sum
	}
	for name, hist := range m.Histograms {
		at[name+".count"], at[name+".sum"] = float64(hist.Count), hist.Sum
	}
	row := make([]float64, len(columns))
	for i, name := range columns {
		if v, ok := at[name]; ok {
			row[i] = v
		} else {
			row[i] = m.Values[name]
		}
	}
	return row, nil
}

// samplesBody has rows of columns, oldest first.
type samplesBody struct {
	Columns []string    `json:"columns"`
	Rows    [][]float64 `json:"rows"`
}

// samples shows the figures of the last ?seconds=, and those of now.
func (h *Handler) samples(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := h.cfg.Keys.Admit(caller(r)); err != nil {
		return nil, err
	}
	p := paramsOf(r)
	seconds := p.number("seconds", int64(sampleHours*3600), 0, int64(sampleHours*3600))
	if p.err != nil {
		return nil, p.err
	}
	now, err := h.sample()
	if err != nil {
		return nil, err
	}
	rows := h.series.since(now[0] - float64(seconds)*1000)
	return &samplesBody{columns, append(rows, now)}, nil
}
