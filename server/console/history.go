package console

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

const (
	defaultHistoryPage = 10
	maxHistoryPage     = 50
	// historyBytes bounds the values of a page.
	historyBytes = 8 << 20
)

// historyBody is a page of the versions of a key, newest first.
type historyBody struct {
	Revision        int64         `json:"revision"`
	CompactRevision int64         `json:"compact_revision"`
	Versions        []versionBody `json:"versions"`
	Next            int64         `json:"next,omitempty"` // ?before= of the next page; 0: there is none
	// Complete: the oldest version of all is on this page, because it was created so.
	Complete bool `json:"complete"`
}

type versionBody struct {
	Revision int64  `json:"revision"`
	Change   string `json:"change"` // created, changed, deleted
	Version  int64  `json:"version,omitempty"`
	Lease    string `json:"lease,omitempty"`
	Bytes    int    `json:"bytes"`
	Kind     string `json:"kind,omitempty"`
	Type     string `json:"type,omitempty"`
	Note     string `json:"note,omitempty"`
	// Same: the value is byte for byte that of the version before.
	Same bool `json:"same,omitempty"`
	// Diff is what changed since the version before, where that is known.
	Diff *diffBody `json:"diff,omitempty"`
}

// history lists the versions of ?key=, base64 (URL), below the revision ?before=.
func (h *Handler) history(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	key, limit, before := p.needed("key"), p.number("limit", defaultHistoryPage, 1, maxHistoryPage), p.revision("before")
	if p.err != nil {
		return nil, p.err
	}
	// One more than is shown: the oldest on the page is compared with it.
	res, err := h.cfg.Keys.KeyHistory(caller(r), &read.KeyHistoryRequest{
		Key: key, Before: before, Limit: int(limit) + 1, MaxBytes: historyBytes,
	})
	if err != nil {
		return nil, err
	}
	return h.viewer(r, key).history(res, int(limit)), nil
}

func (v viewer) history(res *read.KeyHistory, limit int) *historyBody {
	out := &historyBody{Revision: res.Revision, CompactRevision: max(res.CompactRevision, 0), Versions: []versionBody{}}
	views := make([]*view, len(res.Versions))
	for i, rec := range res.Versions {
		views[i] = v.view(rec.Value)
	}
	shown := min(limit, len(res.Versions))
	if len(res.Versions) > 1 && res.More {
		shown = min(shown, len(res.Versions)-1) // the last one has nothing to be compared with
	}
	for i, rec := range res.Versions[:shown] {
		b := versionOf(rec, views[i])
		var older *coder.Record
		olderText := ""
		if i+1 < len(res.Versions) {
			if older = res.Versions[i+1]; !older.Tombstone {
				olderText = views[i+1].text()
			}
		}
		newerText := ""
		if !rec.Tombstone {
			newerText = views[i].text()
		}
		b.Same = b.Change == "changed" && older != nil && bytes.Equal(older.Value, rec.Value)
		if older != nil || b.Change == "created" {
			b.Diff = diff(olderText, newerText)
		}
		out.Versions = append(out.Versions, b)
	}
	if shown > 0 {
		last := out.Versions[shown-1]
		if shown < len(res.Versions) || res.More {
			out.Next = last.Revision
		} else {
			out.Complete = last.Change == "created"
		}
	}
	return out
}

func versionOf(rec *coder.Record, v *view) versionBody {
	b := versionBody{Revision: rec.ModRevision, Change: "changed", Version: rec.Version, Bytes: len(rec.Value)}
	if rec.Lease != 0 {
		b.Lease = leaseName(rec.Lease)
	}
	switch {
	case rec.Tombstone:
		b.Change = "deleted"
		return b
	case rec.Version == 1:
		b.Change = "created"
	}
	b.Kind, b.Type = v.Kind, v.Type
	if v.Note != withoutManaged { // it would stand at every version
		b.Note = v.Note
	}
	return b
}

// leaseName is how etcdctl writes a lease.
func leaseName(id int64) string { return strconv.FormatInt(id, 16) }
