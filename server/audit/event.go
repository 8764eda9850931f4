package audit

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Kind is what an event is about.
type Kind string

// The kinds of events that callers record.
const (
	// Change is an attempt to change users, roles, members, alarms, settings or history by a
	// client that was not denied it.
	Change Kind = "change"
	// Snapshot is a client that read all data as a snapshot.
	Snapshot Kind = "snapshot"
	// LoginFailed is a password that was not accepted.
	LoginFailed Kind = "login_failed"
	// Denied is a request that the client was not permitted to make.
	Denied Kind = "denied"
)

// The kinds of lines about the audit log itself.
const (
	started    Kind = "start"
	stopped    Kind = "stop"
	suppressed Kind = "suppressed"
	resumed    Kind = "resumed"
)

// Event is one line.
type Event struct {
	Method string // the full name of the RPC
	// User is the name of the authenticated user, or the one that a failed login named.
	// Certificate is the common name of the client's verified certificate. Both are empty for
	// an anonymous client.
	User, Certificate string
	Remote            string // address of the client
	RequestID         string // also in the log of requests, of all members that took part
	Code, Error       string // of the answer
	// Target says what the request is about. Make its attributes with Text and List.
	Target []slog.Attr
}

const (
	// maxText is the length in bytes up to which text chosen by clients is recorded.
	maxText = 256
	// maxList is how many texts of a list, and attributes of a target, are recorded.
	maxList = 16
)

// clean escapes what is not printable, and truncates.
func clean[T ~string | ~[]byte](text T) string {
	quoted := strconv.Quote(string(text[:min(len(text), maxText)]))
	quoted = quoted[1 : len(quoted)-1]
	if len(text) > maxText {
		quoted += fmt.Sprintf("…(%d bytes)", len(text))
	}
	return quoted
}

// Text is an attribute whose value a client has chosen.
func Text[T ~string | ~[]byte](name string, value T) slog.Attr {
	return slog.String(name, clean(value))
}

// List is an attribute of several values that a client has chosen.
func List[T ~string | ~[]byte](name string, values []T) slog.Attr {
	texts := make([]string, 0, min(len(values), maxList+1))
	for i, value := range values {
		if i == maxList {
			texts = append(texts, fmt.Sprintf("…(%d in all)", len(values)))
			break
		}
		texts = append(texts, clean(value))
	}
	return slog.Any(name, texts)
}

// record returns the line of an event. Empty fields are left out, except the user and the
// address.
func (e *Event) record(kind Kind, now time.Time) slog.Record {
	r := slog.NewRecord(now, slog.LevelInfo, message, 0)
	r.AddAttrs(slog.String("event", string(kind)), slog.String("method", e.Method), Text("user", e.User))
	if e.Certificate != "" {
		r.AddAttrs(Text("certificate", e.Certificate))
	}
	r.AddAttrs(Text("remote", e.Remote), slog.String("request_id", e.RequestID), slog.String("code", e.Code))
	if e.Error != "" {
		r.AddAttrs(Text("error", e.Error))
	}
	if len(e.Target) > 0 {
		r.AddAttrs(slog.GroupAttrs("target", e.Target[:min(len(e.Target), maxList)]...))
	}
	return r
}
