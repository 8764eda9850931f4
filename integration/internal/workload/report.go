package workload

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run found.
type Report struct {
	Workload  string    `json:"workload"`
	Endpoints []string  `json:"endpoints"`
	Clients   int       `json:"clients"`
	Conns     int       `json:"conns"`
	Seed      uint64    `json:"seed"`
	Prefix    string    `json:"prefix"`
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`

	Phases []PhaseReport `json:"phases"`
	// Verification says what was compared with the model.
	Verification Verification `json:"verification"`

	model *model // what the store holds, for a run that continues
}

// PhaseReport is one part of a workload.
type PhaseReport struct {
	Name    string     `json:"name"`
	Seconds float64    `json:"seconds"`
	Ops     []OpReport `json:"ops"`
	// The usage of the client and of the server's processes, if it was requested.
	Client *Usage  `json:"client,omitempty"`
	Server []Usage `json:"server,omitempty"`
}

// OpReport is one kind of request of a phase.
type OpReport struct {
	Name           string           `json:"name"`
	Succeeded      int64            `json:"succeeded"`
	Failed         int64            `json:"failed"`
	Errors         map[string]int64 `json:"errors,omitempty"` // by gRPC code
	PerSecond      float64          `json:"per_second"`       // those that succeeded
	Keys           int64            `json:"keys"`             // in answers, or events
	SentBytes      int64            `json:"sent_bytes"`       // keys and values
	ReceivedBytes  int64            `json:"received_bytes"`   // keys and values
	BytesPerSecond float64          `json:"bytes_per_second"` // both directions
	// Latency is of those that succeeded, in milliseconds. At a set rate it
	// counts from the moment the request was due.
	Latency Latency `json:"latency_ms"`
}

// Latency holds a distribution in milliseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

// Verification counts what was checked.
type Verification struct {
	Answers int64 `json:"answers"` // responses compared as a whole
	Keys    int64 `json:"keys"`    // keys in them
	Events  int64 `json:"events"`  // watch events that had to come
	// Missing events had to come and did not; unexpected ones came, perhaps for the second time;
	// different ones came with another content.
	Missing    int64 `json:"events_missing"`
	Unexpected int64 `json:"events_unexpected"`
	Different  int64 `json:"events_different"`
	Skipped    int64 `json:"skipped"` // answers not compared: objects of unknown state, or too many to keep
	Lost       int64 `json:"lost"`    // objects whose state is unknown: writes that could not be settled
	Failed     int64 `json:"failed"`
	// Failures describes the first of them.
	Failures []string `json:"failures,omitempty"`
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
		Mean: ms(o.latency.mean()), P50: quantile(0.5), P90: quantile(0.9), P99: quantile(0.99), P999: quantile(0.999),
		Max: ms(o.latency.max),
	}
	if s := elapsed.Seconds(); s > 0 {
		rep.PerSecond = float64(rep.Succeeded) / s
		rep.BytesPerSecond = float64(rep.SentBytes+rep.ReceivedBytes) / s
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

// WriteJSON writes the report as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: %d clients, %d connections, seed %d, prefix %s, %.1f s\n\n",
		r.Workload, strings.Join(r.Endpoints, ","), r.Clients, r.Conns, r.Seed, r.Prefix, r.Seconds)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "phase\toperation\tok\tfailed\tper second\tkeys\tMiB/s\tp50 ms\tp90\tp99\tp99.9\tmax\t")
	for _, p := range r.Phases {
		for _, o := range p.Ops {
			l := o.Latency
			fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%.0f\t%d\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", p.Name, o.Name, o.Succeeded,
				o.Failed, o.PerSecond, o.Keys, o.BytesPerSecond/(1<<20), l.P50, l.P90, l.P99, l.P999, l.Max)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, p := range r.Phases {
		for _, o := range p.Ops {
			for _, code := range slices.Sorted(maps.Keys(o.Errors)) {
				fmt.Fprintf(&b, "errors: %s %s: %d %s\n", p.Name, o.Name, o.Errors[code], code)
			}
		}
	}
	for _, p := range r.Phases {
		if p.Client != nil {
			fmt.Fprintf(&b, "processes: %s: client %.2f CPU seconds", p.Name, p.Client.CPUSeconds)
			for _, s := range p.Server {
				fmt.Fprintf(&b, ", process %d %.2f CPU seconds, %d MiB", s.ID, s.CPUSeconds, s.RSSBytes>>20)
			}
			fmt.Fprintln(&b)
		}
	}
	v := r.Verification
	fmt.Fprintf(&b, "\nverified: %d answers with %d keys, %d events; %d skipped; %d objects lost; %d wrong\n",
		v.Answers, v.Keys, v.Events, v.Skipped, v.Lost, v.Failed)
	if v.Missing+v.Unexpected+v.Different > 0 {
		fmt.Fprintf(&b, "wrong: %d events are missing, %d should not have come, %d have another content\n", v.Missing,
			v.Unexpected, v.Different)
	}
	for _, f := range v.Failures {
		fmt.Fprintf(&b, "wrong: %s\n", f)
	}
	if more := v.Failed - int64(len(v.Failures)); more > 0 {
		fmt.Fprintf(&b, "wrong: and %d more\n", more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
