package workload

import (
	"os"

	"github.com/prometheus/procfs"
)

// Usage is what a process used in a phase.
type Usage struct {
	ID         int     `json:"id"`
	CPUSeconds float64 `json:"cpu_seconds"` // of all its threads
	RSSBytes   int64   `json:"rss_bytes"`   // at the end of the phase
}

// UsageOf returns what a process has used since it started, with the ID 0 if there is no such process.
func UsageOf(id int) (u Usage) {
	if p, err := procfs.NewProc(id); err == nil {
		if stat, err := p.Stat(); err == nil {
			u = Usage{ID: id, CPUSeconds: stat.CPUTime(), RSSBytes: int64(stat.ResidentMemory())}
		}
	}
	return u
}

// usages returns the usage of this process and then of the server's; nothing if the server's are not
// known, because that of the client means little alone.
func (c *Config) usages() (all []Usage) {
	if len(c.Processes) > 0 {
		all = append(all, UsageOf(os.Getpid()))
	}
	for _, id := range c.Processes {
		all = append(all, UsageOf(id))
	}
	return all
}

// reportUsage adds what was used between the phase's begin and end, as far as it is known.
func (p *phase) reportUsage(rep *PhaseReport) {
	for i, used := range p.after {
		if used.ID == 0 || p.before[i].ID == 0 {
			continue
		}
		used.CPUSeconds -= p.before[i].CPUSeconds
		if i == 0 {
			rep.Client = &used
		} else {
			rep.Server = append(rep.Server, used)
		}
	}
}
