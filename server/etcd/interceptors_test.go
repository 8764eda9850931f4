package etcd

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/status"
)

func TestClientVersionMustBeText(t *testing.T) {
	f := &front{requests: status.NewClientRequests(prometheus.NewRegistry())}
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(rpctypes.MetadataClientAPIVersionKey, "\xff"))
	_, err := f.metadata(ctx, "unary")
	requireStatus(t, err, codes.InvalidArgument, "etcdserver: invalid client api version")
}
