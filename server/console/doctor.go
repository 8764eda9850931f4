package console

import (
	"context"
	"net/http"
	"time"
)

// examineTimeout bounds an examination of the database.
const examineTimeout = 20 * time.Second

var (
	errExamining = failure{http.StatusTooManyRequests, "another examination is running: try again"}
	errExamined  = failure{http.StatusBadGateway, "the database could not be examined; the server's log says why"}
)

// doctor examines the database. Findings name hosts and users of the database, so it is for root only, like what is
// watched.
func (h *Handler) doctor(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := h.cfg.Keys.Administer(caller(r)); err != nil {
		return nil, err
	}
	if h.cfg.Examine == nil {
		return nil, failure{http.StatusNotFound, "this server cannot examine its database"}
	}
	if !h.examining.TryAcquire(1) {
		return nil, errExamining
	}
	defer h.examining.Release(1)
	ctx, cancel := context.WithTimeout(r.Context(), examineTimeout)
	defer cancel()
	report, err := h.cfg.Examine(ctx)
	if err != nil {
		h.cfg.Logger.Warn("examining the database for the console", "error", err)
		return nil, errExamined
	}
	return report, nil
}
