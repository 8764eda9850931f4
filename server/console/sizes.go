package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// maxGroups bounds the prefixes that are counted separately; the others are one group.
	maxGroups = 500
	// otherGroup is its name.
	otherGroup = "(others)"
	// sizeKeys bounds the keys of one count.
	sizeKeys = 2_000_000
)

// sizesBody is how many keys there are, and their bytes, by prefix, largest first.
type sizesBody struct {
	Groups   []*sizeBody `json:"groups"`
	Keys     int64       `json:"keys"`
	Bytes    int64       `json:"bytes"`
	Complete bool        `json:"complete"`
	// Reached is the last key that was counted, if that was not all.
	Reached []byte `json:"reached,omitempty"`
}

type sizeBody struct {
	Prefix []byte `json:"prefix"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"` // of keys and current values
}

var errCounting = failure{http.StatusTooManyRequests, "another reader goes through all keys: try again"}

// sizes counts the current keys below ?prefix=, base64 (URL). It reads all of them, as
// a list does, for SizesTimeout at most, and one count at a time; it ends when the
// browser goes away.
func (h *Handler) sizes(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	prefix := p.bytes("prefix")
	if p.err != nil {
		return nil, p.err
	}
	c := counter{groups: map[string]*sizeBody{}}
	out := &c.sizesBody
	key, end := below(prefix)
	var err error
	out.Complete, err = h.eachKey(r, h.cfg.SizesTimeout, &pb.RangeRequest{Key: key, RangeEnd: end},
		func(kv *mvccpb.KeyValue) bool {
			c.add(kv.Key, int64(len(kv.Key)+len(kv.Value)))
			return c.Keys < sizeKeys
		})
	if err != nil {
		return nil, err
	}
	if out.Complete {
		out.Reached = nil
	}
	out.Groups = slices.SortedFunc(maps.Values(c.groups), func(a, b *sizeBody) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), bytes.Compare(a.Prefix, b.Prefix))
	})
	return out, nil
}

var errTimeIsUp = errors.New("console: the time for counting is up")

// eachKey calls f with the keys of q, in order, until it returns false, or the limit is over. It reports whether those
// were all. It admits one reader at a time.
func (h *Handler) eachKey(r *http.Request, limit time.Duration, q *pb.RangeRequest,
	f func(*mvccpb.KeyValue) bool) (whole bool, err error) {
	if !h.counting.TryAcquire(1) {
		return false, errCounting
	}
	defer h.counting.Release(1)
	ctx, cancel := context.WithTimeoutCause(caller(r), limit, errTimeIsUp)
	defer cancel() // ends the stream if it is left early
	stream, err := h.kv.RangeStream(ctx, q)
	for err == nil {
		var chunk *pb.RangeStreamResponse
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		for _, kv := range chunk.GetRangeResponse().GetKvs() {
			if !f(kv) {
				return false, nil
			}
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case errors.Is(context.Cause(ctx), errTimeIsUp):
		return false, nil
	}
	return false, err
}

type counter struct {
	sizesBody
	groups map[string]*sizeBody
}

func (c *counter) add(key []byte, n int64) {
	c.Keys++
	c.Bytes += n
	c.Reached = key
	name := string(group(key))
	g := c.groups[name]
	if g == nil {
		if len(c.groups) >= maxGroups {
			name = otherGroup
		}
		if g = c.groups[name]; g == nil {
			g = &sizeBody{Prefix: []byte(name)}
			c.groups[name] = g
		}
	}
	g.Keys++
	g.Bytes += n
}

// group returns the prefix that key is counted under: the first two segments of its
// path, which for Kubernetes are /registry and the resource, or the API group; then the
// resource is the third. A key without a path is counted under the empty one.
func group(key []byte) []byte {
	segments := 2
	if len(key) > 0 && key[0] == '/' {
		segments++ // the empty one before it
	}
	end := 0
	for n := 0; n < segments; n++ {
		i := bytes.IndexByte(key[end:], '/')
		if i < 0 {
			break
		}
		segment := key[end : end+i]
		end += i + 1
		if n == segments-1 && n == 2 && bytes.HasPrefix(key, []byte("/registry/")) && bytes.IndexByte(segment, '.') > 0 {
			segments++
		}
	}
	return key[:end]
}
