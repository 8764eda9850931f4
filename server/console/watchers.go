package console

import "net/http"

// mostWatched bounds the ranges that are listed.
const mostWatched = 500

// watchersBody is what clients watch on this node.
type watchersBody struct {
	Node   string        `json:"node"`  // its name
	Count  int           `json:"count"` // of all ranges
	Ranges []watchedBody `json:"ranges"`
}

type watchedBody struct {
	Key      []byte `json:"key"`
	RangeEnd []byte `json:"range_end"`
	Watchers int    `json:"watchers"`
	Slow     int    `json:"slow"` // of them, that read from the database what they missed
}

// watchers lists what is watched.
func (h *Handler) watchers(_ http.ResponseWriter, r *http.Request) (any, error) {
	watched, count, err := h.cfg.Keys.Watched(caller(r), mostWatched)
	if err != nil {
		return nil, err
	}
	out := &watchersBody{Node: h.cfg.Name, Count: count, Ranges: make([]watchedBody, len(watched))}
	for i, w := range watched {
		out.Ranges[i] = watchedBody{w.Key, w.End, w.Watchers, w.Lagging}
	}
	return out, nil
}
