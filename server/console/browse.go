package console

import (
	"encoding/base64"
	"net/http"
	"strconv"

	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// keyPage bounds a page of keys.
const (
	defaultKeyPage = 100
	maxKeyPage     = 500
)

// keysBody is one page of one level of the keys.
type keysBody struct {
	Revision int64       `json:"revision"`
	Keys     []childBody `json:"keys"`
	Next     []byte      `json:"next"` // where the next page begins; empty: there is none
}

type childBody struct {
	Name        []byte `json:"name"`
	Prefix      bool   `json:"prefix,omitempty"` // it stands for the keys that begin so
	ModRevision int64  `json:"mod_revision,omitempty"`
	Version     int64  `json:"version,omitempty"`
}

// keys lists one level of keys: ?prefix= and ?after= are base64 (URL), and ?limit= is at
// most maxKeyPage.
func (h *Handler) keys(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := &read.ChildrenRequest{Delimiter: '/'}
	var err error
	if q.Prefix, err = bytesOf(r, "prefix"); err != nil {
		return nil, err
	}
	if q.After, err = bytesOf(r, "after"); err != nil {
		return nil, err
	}
	limit, err := numberOf(r, "limit", defaultKeyPage, 1, maxKeyPage)
	if err != nil {
		return nil, err
	}
	q.Limit = int(limit)
	res, err := h.cfg.Keys.Children(caller(r), q)
	if err != nil {
		return nil, err
	}
	out := &keysBody{Revision: res.Revision, Next: res.Next, Keys: make([]childBody, len(res.Children))}
	for i, c := range res.Children {
		out.Keys[i] = childBody{Name: c.Name, Prefix: c.Record == nil}
		if c.Record != nil {
			out.Keys[i].ModRevision, out.Keys[i].Version = c.Record.ModRevision, c.Record.Version
		}
	}
	return out, nil
}

// bytesOf returns a parameter that is bytes; none are none.
func bytesOf(r *http.Request, name string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get(name))
	if err != nil {
		return nil, badRequest("the parameter " + name + " is no base64")
	}
	return raw, nil
}

// numberOf returns a parameter that is a number from least to most.
func numberOf(r *http.Request, name string, missing, least, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, badRequest("the parameter " + name + " must be a number from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10))
	}
	return n, nil
}

// keyOf returns the parameter that names the key a request is about.
func keyOf(r *http.Request) ([]byte, error) {
	key, err := bytesOf(r, "key")
	if err == nil && len(key) == 0 {
		err = badRequest("the parameter key is missing")
	}
	return key, err
}
