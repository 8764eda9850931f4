package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
)

const (
	// watchTime bounds one request that watches. The page asks again, and permissions and login are checked again.
	watchTime = time.Minute
	// progressTime is how long before its end a watch asks how far it has come, for the next one to begin there. Without
	// changes, the revision at which it began may be compacted by then.
	progressTime = 5 * time.Second
	// maxWatching bounds the requests that watch at the same time.
	maxWatching = 64
	// eventBytes bounds what is shown of the value of an event.
	eventBytes = 64 << 10
)

// eventBody is one line of a watch. The first line has only a revision, that of the watch's start, and the last
// one may have an error. A line with progress says that all changes up to its revision were sent.
type eventBody struct {
	Revision int64  `json:"revision"`
	Progress bool   `json:"progress,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit; empty if it is not known
	Key      []byte `json:"key,omitempty"`
	Change   string `json:"change,omitempty"` // created, changed, deleted
	Version  int64  `json:"version,omitempty"`
	Lease    string `json:"lease,omitempty"`
	Bytes    int    `json:"bytes"`
	Kind     string `json:"kind,omitempty"`
	Text     string `json:"text,omitempty"`
	Error    string `json:"error,omitempty"`
}

var errWatching = failure{http.StatusTooManyRequests, "too many pages watch: try again"}

// watch sends the changes of ?key=, or with ?prefix=1 of all keys that begin so, from ?revision= on, as lines of JSON.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request) {
	h.answers(func(w http.ResponseWriter, r *http.Request) (any, error) {
		if !h.watching.TryAcquire(1) {
			return nil, errWatching
		}
		defer h.watching.Release(1)
		return h.follow(w, r)
	}).ServeHTTP(w, r)
}

// follow returns an error only before it has sent anything. It ends after watchTime, or when the browser goes away.
func (h *Handler) follow(w http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	create := &pb.WatchCreateRequest{StartRevision: p.revision("revision")}
	if p.on("prefix") {
		create.Key, create.RangeEnd = below(p.bytes("key"))
	} else {
		create.Key = p.needed("key")
	}
	if p.err != nil {
		return nil, p.err
	}
	ctx, cancel := context.WithTimeout(caller(r), watchTime)
	defer cancel()
	stream, err := h.watches.Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return nil, err
	}
	res, err := stream.Recv()
	switch {
	case err != nil:
		return nil, err
	case res.Canceled:
		return nil, refusal(res.CancelReason)
	}
	end, _ := ctx.Deadline()
	asking := time.AfterFunc(time.Until(end)-progressTime, func() {
		// An error is Recv's too.
		_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
			ProgressRequest: &pb.WatchProgressRequest{}}})
	})
	defer asking.Stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &lineWriter{w: json.NewEncoder(w), flush: http.NewResponseController(w)}
	out.w.SetEscapeHTML(false)
	err = out.send(eventBody{Revision: res.Header.Revision})
	var commit history.Commit // of the last event
	for err == nil {
		if res, err = stream.Recv(); err != nil {
			break
		}
		if res.Canceled {
			err = errors.New("the watch ended: " + res.CancelReason)
			if res.CompactRevision > 0 {
				err = errors.New("what happened since the last change that is shown was compacted")
			}
			break
		}
		if len(res.Events) == 0 {
			err = out.send(eventBody{Revision: res.Header.Revision, Progress: true})
		}
		for _, e := range res.Events {
			if !commit.Has(e.Kv.ModRevision) {
				commit, _ = h.cfg.Keys.CommitOf(ctx, e.Kv.ModRevision) // an error costs the event's time, not the watch
			}
			if err = h.rendering.slots.Acquire(ctx, 1); err != nil {
				break
			}
			body := h.event(r, e)
			body.Time = history.FormatTime(commit.At)
			h.rendering.slots.Release(1)
			if err = out.send(body); err != nil {
				break
			}
		}
	}
	if ctx.Err() == nil {
		_ = out.send(eventBody{Error: textOf(err)}) // an error means that the client went away
	}
	return sent{}, nil
}

// refusal is the error that a watch was refused for, in its own words.
func refusal(reason string) error {
	for _, err := range []error{rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCAuthOldRevision,
		rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCPermissionDenied} {
		if err.Error() == reason {
			return err
		}
	}
	return failure{http.StatusForbidden, reason}
}

// lineWriter sends each value as one line.
type lineWriter struct {
	w     *json.Encoder
	flush *http.ResponseController
}

func (l *lineWriter) send(e eventBody) error {
	if err := l.w.Encode(e); err != nil {
		return err
	}
	return l.flush.Flush()
}

func (h *Handler) event(r *http.Request, e *mvccpb.Event) eventBody {
	kv := e.Kv
	deleted := e.Type == mvccpb.Event_DELETE
	out := eventBody{Revision: kv.ModRevision, Key: kv.Key, Change: history.ChangeOf(kv.Version, deleted),
		Version: kv.Version,
		Lease:   leaseName(kv.Lease)}
	if deleted {
		return out
	}
	v := h.viewer(r, kv.Key).brief(kv.Value)
	out.Bytes, out.Kind, out.Text = v.Bytes, kindOf(kv.Value), cutAt(v.text(), eventBytes)
	return out
}
