package compat

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The requests whose answers were found equal are recorded, since docs/compatibility.md
// is made of them, and counted.

// source is the kind of test that compared something.
type source int

const (
	byClaims source = iota
	byHistories
	byConcurrent
)

// recording is what one run of a history or of claims has compared, on one engine.
type recording struct {
	engine string
	source source
	// onPage says that a run of the usual length sends the same requests, so that the
	// page does not depend on how long a run was.
	onPage bool
}

// results are those of all tests of this run.
var results = struct {
	sync.Mutex
	engines map[string]*engineResults
	failed  bool // some test: what was compared is not all
}{engines: make(map[string]*engineResults)}

// engineResults are the results on one engine.
type engineResults struct {
	histories, concurrent, steps, claims int
	requests, web, events                int // compared

	rpcs map[string]mark            // by method with its package
	opts map[string]map[string]mark // by method, then by option as in options
	http map[string]mark            // by method and path, as "GET /health"
	asks map[string]map[string]bool // query parameters, by the same
}

// mark records how something was compared.
type mark struct {
	claims, histories bool
	// answered says that one request at least was not refused.
	answered bool
}

func (m mark) with(by source, answered bool) mark {
	m.claims = m.claims || by == byClaims
	m.histories = m.histories || by == byHistories
	m.answered = m.answered || answered
	return m
}

// add calls f with the results of the recording's engine.
func (r *recording) add(f func(*engineResults)) {
	if r == nil {
		return
	}
	results.Lock()
	defer results.Unlock()
	e := results.engines[r.engine]
	if e == nil {
		e = &engineResults{
			rpcs: make(map[string]mark), opts: make(map[string]map[string]mark),
			http: make(map[string]mark), asks: make(map[string]map[string]bool),
		}
		results.engines[r.engine] = e
	}
	f(e)
}

// request records that both servers answered c the same. answered is false where
// both refused it.
func (r *recording) request(c call, answered bool) {
	r.add(func(e *engineResults) {
		e.requests++
		if r.onPage {
			e.request(fullMethod(c.method), r.source, c.req.ProtoReflect(), answered)
		}
	})
}

func (e *engineResults) request(method string, by source, m protoreflect.Message, answered bool) {
	e.rpcs[method] = e.rpcs[method].with(by, answered)
	opts := e.opts[method]
	if opts == nil {
		opts = make(map[string]mark)
		e.opts[method] = opts
	}
	walkRequest(m, "", nil, func(option string) { opts[option] = opts[option].with(by, answered) })
}

// webRequest records that both servers answered an HTTP request the same.
func (r *recording) webRequest(method, target string, ok bool) {
	r.add(func(e *engineResults) {
		e.web++
		path, query, _ := strings.Cut(target, "?")
		name := method + " " + path
		e.http[name] = e.http[name].with(r.source, ok)
		for parameter := range strings.SplitSeq(query, "&") {
			if parameter, _, _ = strings.Cut(parameter, "="); parameter == "" {
				continue
			}
			if e.asks[name] == nil {
				e.asks[name] = make(map[string]bool)
			}
			e.asks[name][parameter] = true
		}
	})
}

// The options of a request are its fields, nested ones with their path; the values
// of enumerations ("sort_order = ASCEND"), and the members of unions, none included.
const (
	unknownValue = "unknown"
	noMember     = "none"
)

func optionValue(field, value string) string { return field + " = " + value }

// walkRequest calls f with the options that m uses. Those of a message inside one
// of the same kind are not distinguished.
func walkRequest(m protoreflect.Message, path string, inside []protoreflect.FullName, f func(option string)) {
	d := m.Descriptor()
	if slices.Contains(inside, d.FullName()) {
		return
	}
	inside = append(slices.Clone(inside), d.FullName())
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		name := path + string(field.Name())
		switch {
		case field.Enum() != nil && field.IsList():
			for j := range m.Get(field).List().Len() {
				f(optionValue(name, enumName(field, m.Get(field).List().Get(j).Enum())))
			}
		case field.Enum() != nil:
			f(optionValue(name, enumName(field, m.Get(field).Enum())))
		case !m.Has(field):
		case field.IsMap() || field.Message() == nil:
			f(name)
		case field.IsList():
			f(name)
			for j := range m.Get(field).List().Len() {
				walkRequest(m.Get(field).List().Get(j).Message(), name+".", inside, f)
			}
		default:
			f(name)
			walkRequest(m.Get(field).Message(), name+".", inside, f)
		}
	}
	for i := range d.Oneofs().Len() {
		if union := d.Oneofs().Get(i); !union.IsSynthetic() && m.WhichOneof(union) == nil {
			f(optionValue(path+string(union.Name()), noMember))
		}
	}
}

func enumName(field protoreflect.FieldDescriptor, n protoreflect.EnumNumber) string {
	if v := field.Enum().Values().ByNumber(n); v != nil {
		return string(v.Name())
	}
	return unknownValue
}

// tallies says in one line an engine what was compared on it.
func tallies() (lines []string) {
	results.Lock()
	defer results.Unlock()
	for _, name := range slices.Sorted(maps.Keys(results.engines)) {
		e := results.engines[name]
		lines = append(lines, fmt.Sprintf("compared with etcd on %s: %d histories of %d steps, %d concurrent histories, "+
			"%d claims; %d requests, %d watch events, %d HTTP requests",
			name, e.histories, e.steps, e.concurrent, e.claims, e.requests, e.events, e.web))
	}
	return lines
}

// spoil says that a test failed, so that what was compared is not all.
func spoil() {
	results.Lock()
	defer results.Unlock()
	results.failed = true
}
