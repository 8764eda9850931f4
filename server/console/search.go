package console

import (
	"bytes"
	"net/http"
	"time"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sqlbrain/sqlbrain/coder"
)

const (
	searchTime = 5 * time.Second // of one request; the page asks on where it ended
	searchPage = 100             // keys found by one request
)

// searchBody are the keys found by one request.
type searchBody struct {
	Keys    []childBody `json:"keys"`
	Scanned int64       `json:"scanned"`
	// Next is where the search continues; empty: all keys were searched.
	Next []byte `json:"next"`
}

// search finds the keys that have ?text= in them, in upper or lower case, among those that begin with ?prefix=; both
// are base64 (URL), like ?after=, the Next of the request before. It reads keys without values, for searchTime and
// one request at a time.
func (h *Handler) search(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	prefix, after, text := p.bytes("prefix"), p.bytes("after"), p.needed("text")
	if p.err != nil {
		return nil, p.err
	}
	key, end := below(prefix)
	if bytes.Compare(after, key) > 0 {
		key = after
	}
	s := &searcher{found: containing(text), searchBody: searchBody{Keys: []childBody{}, Next: key}}
	whole, err := h.eachKey(r, searchTime, &pb.RangeRequest{Key: key, RangeEnd: end, KeysOnly: true},
		func(kv *mvccpb.KeyValue) bool {
			s.add(kv)
			return len(s.Keys) < searchPage
		})
	if err != nil {
		return nil, err
	}
	if whole {
		s.Next = nil
	}
	return &s.searchBody, nil
}

type searcher struct {
	searchBody
	found func(key []byte) bool
}

func (s *searcher) add(kv *mvccpb.KeyValue) {
	s.Scanned++
	s.Next = coder.KeyAfter(kv.Key)
	if !s.found(kv.Key) {
		return
	}
	s.Keys = append(s.Keys, childBody{Name: kv.Key, ModRevision: kv.ModRevision, Version: kv.Version,
		Lease: leaseName(kv.Lease)})
}

// containing returns what reports whether a key has text in it, in upper or lower case. bytes.ToLower makes all bytes
// that are not UTF-8 the same.
func containing(text []byte) func(key []byte) bool {
	valid, lower, ascii := utf8.Valid(text), bytes.ToLower(text), lowerASCII(text)
	return func(key []byte) bool {
		if valid && utf8.Valid(key) {
			return bytes.Contains(bytes.ToLower(key), lower)
		}
		return bytes.Contains(lowerASCII(key), ascii)
	}
}

func lowerASCII(b []byte) []byte {
	b = bytes.Clone(b)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return b
}
