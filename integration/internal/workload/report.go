package workload

import (
	"maps"
	"time"
)

// Report is what a run found.
type Report struct {
	Phases []PhaseReport
	// Verification says what was compared with the model.
	Verification Verification

	model *model // what the store holds, for a run that continues
}

// PhaseReport is one part of a workload.
type PhaseReport struct {
	Name    string
	Seconds float64
	Ops     []OpReport
	// The usage of the client and of the server's processes, if it was requested.
	Client *Usage
	Server []Usage
}

// OpReport is one kind of request of a phase.
type OpReport struct {
	Name      string
	Succeeded int64
	Failed    int64
	Errors    map[string]int64 // by gRPC code
	PerSecond float64          // those that succeeded
	Keys      int64            // in answers, or events
	// Latency is of those that succeeded, in milliseconds. At a set rate it
	// counts from the moment the request was due.
	Latency Latency
}

// Latency holds a distribution in milliseconds.
type Latency struct {
	P50  float64
	P90  float64
	P99  float64
	P999 float64
}

// Verification counts what was checked.
type Verification struct {
	Answers int64 // responses compared as a whole
	Keys    int64 // keys in them
	Events  int64 // watch events that had to come
	// Missing events had to come and did not; unexpected ones came, perhaps for the second time;
	// different ones came with another content.
	Missing    int64
	Unexpected int64
	Different  int64
	Skipped    int64 // answers not compared: objects of unknown state, or too many to keep
	Lost       int64 // objects whose state is unknown: writes that could not be settled
	Failed     int64
	// Failures describes the first of them.
	Failures []string
}

func (p *phase) report() PhaseReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	rep := PhaseReport{Name: p.name, Seconds: p.elapsed.Seconds(), Ops: []OpReport{}}
	for _, o := range p.ops {
		rep.Ops = append(rep.Ops, o.report(p.elapsed))
	}
	p.reportUsage(&rep)
	return rep
}

func (o *opStats) report(elapsed time.Duration) OpReport {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	quantile := func(q float64) float64 { return ms(o.latency.quantile(q)) }
	rep := o.counted
	rep.Errors = maps.Clone(rep.Errors)
	rep.Latency = Latency{
		P50: quantile(0.5), P90: quantile(0.9), P99: quantile(0.99), P999: quantile(0.999),
	}
	if s := elapsed.Seconds(); s > 0 {
		rep.PerSecond = float64(rep.Succeeded) / s
	}
	return rep
}

// Requests returns how many requests succeeded and failed in all phases.
func (r *Report) Requests() (succeeded, failed int64) {
	for _, p := range r.Phases {
		for _, o := range p.Ops {
			succeeded += o.Succeeded
			failed += o.Failed
		}
	}
	return succeeded, failed
}
