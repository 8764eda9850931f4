package bench

import "github.com/prometheus/procfs"

// usage is what a process has used so far.
type usage struct {
	cpu float64 // seconds, of all its threads
	rss int64   // bytes
}

// usageOf fails where there is no /proc, or no such process.
func usageOf(p procfs.Proc) (usage, error) {
	stat, err := p.Stat()
	if err != nil {
		return usage{}, err
	}
	return usage{cpu: stat.CPUTime(), rss: int64(stat.ResidentMemory())}, nil
}

// processes are the client's process and the server's, as far as they are known.
type processes struct {
	client procfs.Proc
	server []procfs.Proc
}

// findProcesses opens /proc's entries. The client is looked at only if the server
// is, as its use means little alone.
func findProcesses(server []int) (*processes, error) {
	if len(server) == 0 {
		return nil, nil
	}
	self, err := procfs.Self()
	if err != nil {
		return nil, err
	}
	ps := &processes{client: self}
	for _, id := range server {
		p, err := procfs.NewProc(id)
		if err != nil {
			return nil, err
		}
		ps.server = append(ps.server, p)
	}
	return ps, nil
}

// usages returns what the client and each process of the server have used. What
// has ended or cannot be read is not in it.
func (ps *processes) usages() map[int]usage {
	if ps == nil {
		return nil
	}
	all := map[int]usage{}
	for _, p := range append([]procfs.Proc{ps.client}, ps.server...) {
		if u, err := usageOf(p); err == nil {
			all[p.PID] = u
		}
	}
	return all
}

// ProcessReport is what a process used in a phase.
type ProcessReport struct {
	ID         int     `json:"id"`
	CPUSeconds float64 `json:"cpu_seconds"`
	RSSBytes   int64   `json:"rss_bytes"` // at the end of the phase
}

// used returns what the process used between two moments; nil if that is not known.
func used(p procfs.Proc, before, after map[int]usage) *ProcessReport {
	b, known := before[p.PID]
	a, still := after[p.PID]
	if !known || !still {
		return nil
	}
	return &ProcessReport{ID: p.PID, CPUSeconds: a.cpu - b.cpu, RSSBytes: a.rss}
}

// tell adds what was used between the phase's begin and end to its report.
func (ps *processes) tell(p *phase, rep *PhaseReport) {
	if ps == nil {
		return
	}
	rep.Client = used(ps.client, p.before, p.after)
	for _, s := range ps.server {
		if u := used(s, p.before, p.after); u != nil {
			rep.Server = append(rep.Server, *u)
		}
	}
}
