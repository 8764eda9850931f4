package console

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
)

// memberTimeout bounds the questions to other members of one request.
const memberTimeout = time.Second

// The states of members.
const (
	memberNew     = "not started" // added, and no process ran yet
	memberAlive   = "alive"
	memberSilent  = "does not answer" // its heartbeats have not been missing for long enough to be sure
	memberStopped = "stopped"
	memberLost    = "not alive"
)

type memberBody struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	ClientURLs []string `json:"client_urls"`
	Version    string   `json:"version"`
	State      string   `json:"state"`
	Leader     bool     `json:"leader"`
	Self       bool     `json:"self"`
	// Console is the address of the member's console; empty if it has none, or that is not known.
	Console string `json:"console,omitempty"`
	// Figures are what the member's process measures, with its revision; none if it could not be asked.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// members lists the members, so that every page can show which of them are lost.
func (h *Handler) members(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := h.cfg.Keys.Admit(caller(r)); err != nil {
		return nil, err
	}
	return h.askMembers(r.Context()), nil
}

// askMembers returns the members, with the figures of the others that answer in time. A process that was killed sends
// no heartbeats, which shows after some seconds only; that it does not answer shows at once.
func (h *Handler) askMembers(ctx context.Context) []memberBody {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	leader, self, all := h.cfg.Node.Status().Leader, h.cfg.Node.MemberID(), h.cfg.Members()
	out := make([]memberBody, len(all))
	var asking sync.WaitGroup
	for i, m := range all {
		b := &out[i]
		*b = memberBody{
			ID: hexID(m.ID), Name: m.Name, ClientURLs: m.ClientURLs, Version: m.Version, State: stateOf(m),
			Leader: m.ID == leader, Self: m.ID == self,
		}
		if b.Self || !m.Alive || h.cfg.Figures == nil {
			continue
		}
		asking.Go(func() {
			var err error
			b.Figures, err = h.cfg.Figures(ctx, m.ID)
			switch {
			case err == nil && b.Figures[consoleFigure] > 0:
				b.Console = consoleOf(m.ClientURLs)
			case err != nil:
				b.State = memberSilent
				h.cfg.Logger.Debug("the console has no figures of a member", "member", m.ID, "error", err)
			}
		})
	}
	asking.Wait()
	return out
}

func stateOf(m member.Member) string {
	switch {
	case m.Alive:
		return memberAlive
	case !m.Started():
		return memberNew
	case m.Stopped:
		return memberStopped
	}
	return memberLost
}

// consoleOf returns the address of the console of a member with these client URLs, or "".
func consoleOf(clientURLs []string) string {
	for _, raw := range clientURLs {
		if u, err := url.Parse(raw); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
			return u.Scheme + "://" + u.Host + Path
		}
	}
	return ""
}
