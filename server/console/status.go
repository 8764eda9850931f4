package console

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// statusBody is what the overview shows. Counters and sums count from the start of
// the process: the page makes rates of two answers.
type statusBody struct {
	Time       int64  `json:"time"` // milliseconds since 1970, by the server's clock
	Name       string `json:"name"`
	Product    string `json:"product"`
	Etcd       string `json:"etcd"`
	ClusterID  string `json:"cluster_id"`
	MemberID   string `json:"member_id"`
	Leader     string `json:"leader"` // empty: none is known
	NotServing string `json:"not_serving,omitempty"`

	Revision        int64 `json:"revision"`
	CompactRevision int64 `json:"compact_revision"` // 0: nothing was compacted yet
	Term            int64 `json:"term"`
	Commits         int64 `json:"commits"`
	DBSize          int64 `json:"db_size"`
	DBSizeInUse     int64 `json:"db_size_in_use"`
	Quota           int64 `json:"quota"` // 0: none
	// FeedLag is by how many revisions this node trails the leader; -1: not known.
	FeedLag int64 `json:"feed_lag"`

	Members []memberBody `json:"members"`
	Alarms  []alarmBody  `json:"alarms"`
	Metrics metricsBody  `json:"metrics"`
}

type alarmBody struct {
	Member string `json:"member"`
	Alarm  string `json:"alarm"`
}

func (h *Handler) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := h.cfg.Keys.Admit(caller(r)); err != nil {
		return nil, err
	}
	st := h.cfg.Node.Status()
	out := &statusBody{
		Time: time.Now().UnixMilli(), Name: h.cfg.Name, Product: h.cfg.Product, Etcd: h.cfg.EtcdVersion,
		ClusterID: hexID(h.cfg.Node.ClusterID()), MemberID: hexID(h.cfg.Node.MemberID()),
		Revision: st.Revision, CompactRevision: max(st.CompactRevision, 0), Term: st.Term, Commits: st.Sequence,
		DBSize: st.DBSize, DBSizeInUse: st.DBSizeInUse, Quota: st.QuotaBytes,
		Alarms: []alarmBody{},
	}
	if st.Leader != 0 {
		out.Leader = hexID(st.Leader)
	}
	if st.NotServing != nil {
		// The reason may name the database's address.
		out.NotServing = "this node does not serve; its log says why"
	}
	for _, a := range h.cfg.Alarms.All() {
		out.Alarms = append(out.Alarms, alarmBody{hexID(a.MemberID), pb.AlarmType(a.Type).String()})
	}
	var err error
	if out.Metrics, err = gather(h.cfg.Metrics); err != nil {
		return nil, err
	}
	var asking sync.WaitGroup
	asking.Go(func() { out.Members = h.askMembers(r.Context()) })
	out.FeedLag = h.feedLag(r, st.Leader)
	asking.Wait()
	for i := range out.Members {
		if m := &out.Members[i]; m.Self {
			m.Figures = figuresOf(out.Metrics, out.Revision, true)
		}
	}
	return out, nil
}

// feedLag asks the leader where it is: its answer about authentication, which every
// caller may have, has its revision.
func (h *Handler) feedLag(r *http.Request, leader uint64) int64 {
	switch leader {
	case h.cfg.Node.MemberID():
		return 0
	case 0:
		return -1
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	res, err := h.auth.AuthStatus(ctx, &pb.AuthStatusRequest{})
	if err != nil {
		return -1
	}
	return max(res.Header.Revision-h.cfg.Node.Status().Revision, 0)
}

func hexID(id uint64) string { return fmt.Sprintf("%x", id) }
