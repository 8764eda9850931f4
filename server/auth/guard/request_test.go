package guard

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
)

// asked is an AuthStore that records what it is asked for, and refuses one of it.
type asked struct {
	etcdauth.AuthStore
	all    []string
	refuse string
}

var errRefused = errors.New("refused")

func (a *asked) ask(what string) error {
	a.all = append(a.all, what)
	if what == a.refuse {
		return errRefused
	}
	return nil
}

func (a *asked) IsPutPermitted(_ *etcdauth.AuthInfo, key []byte) error {
	return a.ask(fmt.Sprintf("put %s", key))
}

func (a *asked) IsRangePermitted(_ *etcdauth.AuthInfo, key, end []byte) error {
	return a.ask(fmt.Sprintf("range %s %s", key, end))
}

func (a *asked) IsDeleteRangePermitted(_ *etcdauth.AuthInfo, key, end []byte) error {
	return a.ask(fmt.Sprintf("delete %s %s", key, end))
}

func (a *asked) IsAdminPermitted(*etcdauth.AuthInfo) error { return errRefused }

// Every part of a transaction needs permission, whichever branch is executed.
func TestEveryPartOfATransactionNeedsPermission(t *testing.T) {
	put := func(r *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	}
	get := func(key, end string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key),
			RangeEnd: []byte(end)}}}
	}
	del := func(r *pb.DeleteRangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	}
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("c"), RangeEnd: []byte("d")}},
		Success: []*pb.RequestOp{get("s", "t"), put(&pb.PutRequest{Key: []byte("sp"), PrevKv: true, Lease: 7})},
		Failure: []*pb.RequestOp{
			get("f", ""), put(&pb.PutRequest{Key: []byte("fp")}),
			del(&pb.DeleteRangeRequest{Key: []byte("fd"), RangeEnd: []byte("fe"), PrevKv: true}),
			del(&pb.DeleteRangeRequest{Key: []byte("fd2")}),
			{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
				Compare: []*pb.Compare{{Key: []byte("nc")}}, Success: []*pb.RequestOp{get("ns", "")},
				Failure: []*pb.RequestOp{put(&pb.PutRequest{Key: []byte("nf")})},
			}}},
		},
	}
	leased := func(id int64, see func([]byte) error) error { return see(fmt.Appendf(nil, "leased%d", id)) }
	all := &asked{}
	require.NoError(t, authorizeTxn(all, nil, leased, txn))
	require.ElementsMatch(t, []string{
		"range c d", "range s t", "put sp", "range sp ", "put leased7", "range f ", "put fp",
		"range fd fe", "delete fd fe", "delete fd2 ", "range nc ", "range ns ", "put nf",
	}, all.all)
	for _, what := range all.all {
		require.ErrorIs(t, authorizeTxn(&asked{refuse: what}, nil, leased, txn), errRefused, what)
	}
}
