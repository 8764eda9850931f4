package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// clusterServer serves etcd's Cluster service.
type clusterServer struct {
	pb.UnsafeClusterServer

	headers    headers
	name       string
	clientURLs []string
}

// MemberList names this node. As in etcd its header has no revision.
func (s *clusterServer) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{
		Header:  s.headers.at(0),
		Members: []*pb.Member{{ID: s.headers.id.MemberID(), Name: s.name, ClientURLs: s.clientURLs}},
	}, nil
}

// The nodes of a cluster are those that share its database: they are not added
// and removed by clients.

func (s *clusterServer) MemberAdd(context.Context, *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	return nil, unsupported("member changes are")
}

func (s *clusterServer) MemberRemove(context.Context, *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	return nil, unsupported("member changes are")
}

func (s *clusterServer) MemberUpdate(context.Context, *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	return nil, unsupported("member changes are")
}

func (s *clusterServer) MemberPromote(context.Context, *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return nil, unsupported("member changes are")
}
