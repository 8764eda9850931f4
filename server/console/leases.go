package console

import (
	"context"
	"net/http"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	leasePage = 50 // leases of a page
	leaseKeys = 20 // keys that are listed of each lease; of one lease, leaseAll
	leaseAll  = 1000
)

// leasesBody is a page of leases, by their ids.
type leasesBody struct {
	Count  int         `json:"count"` // of all leases
	Leases []leaseInfo `json:"leases"`
	Next   string      `json:"next,omitempty"` // ?after= of the next page
}

type leaseInfo struct {
	leaseBody
	Count int      `json:"count"` // of the lease's keys
	Keys  [][]byte `json:"keys"`  // the first ones
	Error string   `json:"error,omitempty"`
}

// leases lists the leases after ?after=, or only ?id=, as etcdctl writes ids.
func (h *Handler) leases(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	after, id := p.lease("after"), p.lease("id")
	if p.err != nil {
		return nil, p.err
	}
	if id != 0 {
		info := h.leaseOf(caller(r), id, leaseAll)
		return &leasesBody{Count: 1, Leases: []leaseInfo{info}}, nil
	}
	res, err := h.lease.LeaseLeases(caller(r), &pb.LeaseLeasesRequest{})
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(res.Leases))
	for i, l := range res.Leases {
		ids[i] = l.ID
	}
	slices.Sort(ids)
	out := &leasesBody{Count: len(ids), Leases: []leaseInfo{}}
	if first, found := slices.BinarySearch(ids, after); after != 0 {
		if found {
			first++
		}
		ids = ids[first:]
	}
	if len(ids) > leasePage {
		ids = ids[:leasePage]
		out.Next = leaseName(ids[leasePage-1])
	}
	for _, id := range ids {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		out.Leases = append(out.Leases, h.leaseOf(caller(r), id, leaseKeys))
	}
	return out, nil
}

// leaseOf asks about one lease. A user may not see the keys of each: the error then says so.
func (h *Handler) leaseOf(ctx context.Context, id int64, most int) leaseInfo {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out := leaseInfo{leaseBody: leaseBody{ID: leaseName(id)}, Keys: [][]byte{}}
	res, err := h.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	if err != nil {
		out.Error = textOf(err)
		return out
	}
	out.TTL, out.GrantedTTL, out.Count = res.TTL, res.GrantedTTL, len(res.Keys)
	out.Keys = append(out.Keys, res.Keys[:min(most, len(res.Keys))]...)
	return out
}
