package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

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
	// Next is where the search goes on; empty: all keys were looked at.
	Next []byte `json:"next"`
}

// search finds the keys that have ?text= in them, in upper or lower case, among those that begin with ?prefix=; both
// are base64 (URL), like ?after=, the Next of the request before. It reads keys without values, for searchTime and
// one request at a time.
func (h *Handler) search(_ http.ResponseWriter, r *http.Request) (any, error) {
	prefix, err := bytesOf(r, "prefix")
	if err != nil {
		return nil, err
	}
	text, err := bytesOf(r, "text")
	if err != nil {
		return nil, err
	}
	after, err := bytesOf(r, "after")
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, badRequest("the parameter text is missing")
	}
	done, err := h.scan()
	if err != nil {
		return nil, err
	}
	defer done()
	key, end := below(prefix)
	if bytes.Compare(after, key) > 0 {
		key = after
	}
	ctx, cancel := context.WithTimeoutCause(caller(r), searchTime, errTimeIsUp)
	defer cancel()
	s := &searcher{text: bytes.ToLower(text), searchBody: searchBody{Keys: []childBody{}, Next: key}}
	err = s.read(ctx, h.kv, key, end)
	if err != nil && !errors.Is(context.Cause(ctx), errTimeIsUp) {
		return nil, err
	}
	return &s.searchBody, nil
}

type searcher struct {
	searchBody
	text []byte // in lower case
}

func (s *searcher) read(ctx context.Context, kv pb.KVClient, key, end []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if it is left early
	stream, err := kv.RangeStream(ctx, &pb.RangeRequest{Key: key, RangeEnd: end, KeysOnly: true})
	if err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			s.Next = nil
			return nil
		}
		if err != nil {
			return err
		}
		for _, kv := range chunk.GetRangeResponse().GetKvs() {
			if s.look(kv); len(s.Keys) == searchPage {
				return nil
			}
		}
	}
}

func (s *searcher) look(kv *mvccpb.KeyValue) {
	s.Scanned++
	s.Next = coder.KeyAfter(kv.Key)
	if !bytes.Contains(bytes.ToLower(kv.Key), s.text) {
		return
	}
	found := childBody{Name: kv.Key, ModRevision: kv.ModRevision, Version: kv.Version}
	if kv.Lease != 0 {
		found.Lease = leaseName(kv.Lease)
	}
	s.Keys = append(s.Keys, found)
}
