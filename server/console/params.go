package console

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
)

// params reads the parameters of a request. err is the first that cannot be read; its value and later ones are empty.
type params struct {
	values url.Values
	err    error
}

func paramsOf(r *http.Request) *params { return &params{values: r.URL.Query()} }

func (p *params) fail(format string, args ...any) {
	if p.err == nil {
		p.err = badRequest("the parameter " + fmt.Sprintf(format, args...))
	}
}

// on reports whether a parameter is 1.
func (p *params) on(name string) bool { return p.values.Get(name) == "1" }

// bytes returns a parameter that is bytes, in base64 (URL); none are none.
func (p *params) bytes(name string) []byte {
	raw, err := base64.RawURLEncoding.DecodeString(p.values.Get(name))
	if err != nil {
		p.fail("%s is no base64", name)
	}
	return raw
}

// needed is bytes that must not be empty.
func (p *params) needed(name string) []byte {
	raw := p.bytes(name)
	if len(raw) == 0 {
		p.fail("%s is missing", name)
	}
	return raw
}

// number returns a parameter that is a number from least to most.
func (p *params) number(name string, missing, least, most int64) int64 {
	text := p.values.Get(name)
	if text == "" {
		return missing
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		p.fail("%s must be a number from %d to %d", name, least, most)
	}
	return n
}

// revision returns a parameter that is a revision, 0 for the current one.
func (p *params) revision(name string) int64 { return p.number(name, 0, 0, math.MaxInt64) }

// revisionAt returns a parameter that is a revision, 0 for the current one, or a time: see history.ParseTime.
func (h *Handler) revisionAt(r *http.Request, p *params, name string) int64 {
	text := p.values.Get(name)
	if _, err := strconv.ParseInt(text, 10, 64); text == "" || err == nil || p.err != nil {
		return p.revision(name)
	}
	at, err := history.ParseTime(text, time.Now())
	if err != nil {
		p.fail("%s is no revision, and %s", name, err)
		return 0
	}
	revision, err := h.cfg.Keys.RevisionAt(caller(r), at)
	if err != nil {
		p.err = err
	}
	return revision
}

// lease returns a parameter that is the id of a lease; 0: there is none.
func (p *params) lease(name string) int64 {
	text := p.values.Get(name)
	if text == "" {
		return 0
	}
	id, err := strconv.ParseInt(text, 16, 64)
	if err != nil {
		p.fail("%s is no lease", name)
	}
	return id
}
