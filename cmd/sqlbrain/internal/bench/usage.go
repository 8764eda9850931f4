package bench

import "github.com/prometheus/procfs"

// ProcessReport is what a process used in a phase.
type ProcessReport struct {
	ID         int     `json:"id"`
	CPUSeconds float64 `json:"cpu_seconds"` // of all its threads
	RSSBytes   int64   `json:"rss_bytes"`   // at the end of the phase
}

// processes are the client's process and then the server's; none if the server's are not known.
type processes []procfs.Proc

// findProcesses opens the entries of /proc. The client's is left out if there are none of the
// server, because its usage means little alone.
func findProcesses(server []int) (processes, error) {
	if len(server) == 0 {
		return nil, nil
	}
	self, err := procfs.Self()
	if err != nil {
		return nil, err
	}
	ps := processes{self}
	for _, id := range server {
		p, err := procfs.NewProc(id)
		if err != nil {
			return nil, err
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// usages returns what each process has used since it started, with the ID 0 if the process has ended
// or cannot be read.
func (ps processes) usages() []ProcessReport {
	all := make([]ProcessReport, len(ps))
	for i, p := range ps {
		if stat, err := p.Stat(); err == nil {
			all[i] = ProcessReport{ID: p.PID, CPUSeconds: stat.CPUTime(), RSSBytes: int64(stat.ResidentMemory())}
		}
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
