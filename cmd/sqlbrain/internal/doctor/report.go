package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Status judges one finding.
type Status string

// The statuses. OK: fit; Warn: works, but not as well or as safely as it could;
// Fail: sqlbrain will not work, or will lose data.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is one line of the report.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`           // what was found
	Advice string `json:"advice,omitempty"` // what to do; empty if the status is OK
}

// Report is the findings in the order they were made.
type Report struct {
	Datastore string    `json:"datastore"` // without a password
	Findings  []Finding `json:"findings"`
}

// Failed counts the findings that failed.
func (r *Report) Failed() int {
	n := 0
	for _, f := range r.Findings {
		if f.Status == Fail {
			n++
		}
	}
	return n
}

func (r *Report) add(check string, status Status, detail, advice string) {
	if status == OK {
		advice = ""
	}
	r.Findings = append(r.Findings, Finding{check, status, detail, advice})
}

func (r *Report) ok(check, format string, args ...any) {
	r.add(check, OK, fmt.Sprintf(format, args...), "")
}

// expect reports a check with the same detail whether it is good or not.
func (r *Report) expect(check string, good bool, detail string, otherwise Status, advice string) {
	if good {
		otherwise = OK
	}
	r.add(check, otherwise, detail, advice)
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "datastore %s\n\n", r.Datastore)
	for _, f := range r.Findings {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Status, f.Check, f.Detail)
		if f.Advice != "" {
			fmt.Fprintf(tw, "\t\t-> %s\n", f.Advice)
		}
	}
	return tw.Flush() // and the first error of the writes above
}
