package console

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

const (
	defaultHistoryPage = 10
	maxHistoryPage     = 50
	// historyBytes bounds the values of a page. It ends earlier once those that are made readable are renderBytes.
	historyBytes = 8 << 20
	renderBytes  = 1 << 20
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
	Time     string `json:"time,omitempty"` // of the commit; empty if it is not known
	Change   string `json:"change"`         // created, changed, deleted
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
	return h.viewer(r, key).history(r.Context(), res, int(limit))
}

func (v viewer) history(ctx context.Context, res *read.KeyHistory, limit int) (*historyBody, error) {
	out := &historyBody{Revision: res.Revision, CompactRevision: max(res.CompactRevision, 0), Versions: []versionBody{}}
	all := res.Versions
	most := min(limit, len(all))
	if len(all) > 1 && res.More {
		most = min(most, len(all)-1) // the last one has nothing to be compared with
	}
	rendered := 0 // bytes of the values that were made readable
	brief := func(rec *coder.Record) *view {
		rendered += len(rec.Value)
		return v.brief(rec.Value)
	}
	var newer, older *view
	for i, rec := range all[:most] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if newer = older; i == 0 {
			newer = brief(rec)
		} else if rendered >= renderBytes {
			break
		}
		b := versionOf(rec, newer)
		if i < len(res.Times) {
			b.Time = history.FormatTime(res.Times[i])
		}
		switch {
		case i+1 < len(all):
			older = brief(all[i+1])
			b.Same = b.Change == "changed" && bytes.Equal(all[i+1].Value, rec.Value)
			b.Diff = older.diff(newer)
		case b.Change == "created":
			b.Diff = (&view{}).diff(newer)
		case res.More:
			b.Diff = &diffBody{Hunks: []hunkBody{}, Note: tooLong}
		}
		out.Versions = append(out.Versions, b)
	}
	if shown := len(out.Versions); shown > 0 {
		last := out.Versions[shown-1]
		if shown < len(all) || res.More {
			out.Next = last.Revision
		} else {
			out.Complete = last.Change == "created"
		}
	}
	return out, nil
}

// brief is a view to be compared, or one without texts if the value is too long for that.
func (v viewer) brief(value []byte) *view {
	if len(value) > diffBytes {
		return &view{Kind: kindOf(value), Bytes: len(value), long: true}
	}
	return v.view(value)
}

// diff compares a view with a newer one.
func (out *view) diff(newer *view) *diffBody {
	if out.long || newer.long {
		return &diffBody{Hunks: []hunkBody{}, Note: tooLong}
	}
	return diff(out.text(), newer.text())
}

func versionOf(rec *coder.Record, v *view) versionBody {
	b := versionBody{Revision: rec.ModRevision, Change: history.ChangeOf(rec.Version, rec.Tombstone), Version: rec.Version,
		Lease: leaseName(rec.Lease), Bytes: len(rec.Value)}
	if rec.Tombstone {
		return b
	}
	b.Kind, b.Type = v.Kind, v.Type
	if v.Note != withoutManaged { // it would stand at every version
		b.Note = v.Note
	}
	return b
}

// leaseName is how etcdctl writes a lease; 0, which is none, is empty.
func leaseName(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 16)
}
