package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	clusternode "github.com/sqlbrain/sqlbrain/server/cluster/node"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Errors of this server that etcd has no text for.
var (
	errSortTooLarge = status.Error(codes.ResourceExhausted,
		"sqlbrain: the range is too large to be sorted for a stream; ask for it in key order, or for a smaller range")
	errDatabaseUnavailable = status.Error(codes.Unavailable,
		"sqlbrain: the database is unavailable; the server's log says why")
	errSingleMember = status.Error(codes.Unimplemented,
		"sqlbrain: member changes are not supported by a server that has its database to itself; a cluster needs MySQL, "+
			"MariaDB or TiDB")
	errLearners = status.Error(codes.Unimplemented,
		"sqlbrain: learners are not supported: every member reads the database itself and has nothing to learn")
	// etcd 3.7 sends this one without its code.
	errLastMember = status.Error(codes.Unknown, rpctypes.ErrorDesc(rpctypes.ErrGRPCMemberNotEnoughStarted))
	errInternal   = status.Error(codes.Internal, "sqlbrain: internal error; the server's log says more")
)

// grpcErrors says which gRPC error an error of the packages below becomes. The
// first entry that errors.Is finds counts, so an error that wraps several is
// what stands first: a replica's own error goes before its cause.
var grpcErrors = []struct {
	is     error
	answer error
}{
	{mvcc.ErrCompacted, rpctypes.ErrGRPCCompacted},
	{mvcc.ErrFutureRevision, rpctypes.ErrGRPCFutureRev},
	{mvcc.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound},
	{mvcc.ErrDuplicateKey, rpctypes.ErrGRPCDuplicateKey},
	{mvcc.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
	{mvcc.ErrLeaseExists, rpctypes.ErrGRPCLeaseExist},
	{mvcc.ErrLeaseTTLTooLarge, rpctypes.ErrGRPCLeaseTTLTooLarge},
	{quota.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
	{quota.ErrCorrupt, rpctypes.ErrGRPCCorrupt},
	{mvcc.ErrNotServing, rpctypes.ErrGRPCNoLeader},
	{mvcc.ErrNotLeader, rpctypes.ErrGRPCNotLeader},
	{mvcc.ErrLeaderLost, rpctypes.ErrGRPCLeaderChanged},
	{clusternode.ErrBadTransferee, rpctypes.ErrGRPCBadLeaderTransferee},
	{mvcc.ErrTimeout, rpctypes.ErrGRPCTimeout},
	{mvcc.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests},
	{mvcc.ErrSortTooLarge, errSortTooLarge},
	{mvcc.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge},

	{etcdauth.ErrRootUserNotExist, rpctypes.ErrGRPCRootUserNotExist},
	{etcdauth.ErrRootRoleNotExist, rpctypes.ErrGRPCRootRoleNotExist},
	{etcdauth.ErrUserAlreadyExist, rpctypes.ErrGRPCUserAlreadyExist},
	{etcdauth.ErrUserEmpty, rpctypes.ErrGRPCUserEmpty},
	{etcdauth.ErrUserNotFound, rpctypes.ErrGRPCUserNotFound},
	{etcdauth.ErrRoleAlreadyExist, rpctypes.ErrGRPCRoleAlreadyExist},
	{etcdauth.ErrRoleNotFound, rpctypes.ErrGRPCRoleNotFound},
	{etcdauth.ErrRoleEmpty, rpctypes.ErrGRPCRoleEmpty},
	{etcdauth.ErrAuthFailed, rpctypes.ErrGRPCAuthFailed},
	{etcdauth.ErrPermissionNotGiven, rpctypes.ErrGRPCPermissionNotGiven},
	{auth.ErrNoPermit, rpctypes.ErrGRPCPermissionDenied},
	{etcdauth.ErrPermissionDenied, rpctypes.ErrGRPCPermissionDenied},
	{etcdauth.ErrRoleNotGranted, rpctypes.ErrGRPCRoleNotGranted},
	{etcdauth.ErrPermissionNotGranted, rpctypes.ErrGRPCPermissionNotGranted},
	{etcdauth.ErrAuthNotEnabled, rpctypes.ErrGRPCAuthNotEnabled},
	{etcdauth.ErrInvalidAuthToken, rpctypes.ErrGRPCInvalidAuthToken},
	{etcdauth.ErrInvalidAuthMgmt, rpctypes.ErrGRPCInvalidAuthMgmt},
	{etcdauth.ErrAuthOldRevision, rpctypes.ErrGRPCAuthOldRevision},
	// etcd sends these without a specific code.
	{etcdauth.ErrNoPasswordUser, status.Error(codes.Unknown, etcdauth.ErrNoPasswordUser.Error())},
	{etcdauth.ErrVerifyOnly, status.Error(codes.Unknown, etcdauth.ErrVerifyOnly.Error())},
	{guard.ErrPasswordTooCostly, status.Error(codes.InvalidArgument, "sqlbrain: "+guard.ErrPasswordTooCostly.Error())},
	{bcrypt.ErrPasswordTooLong, status.Error(codes.Unknown, bcrypt.ErrPasswordTooLong.Error())},

	{member.ErrNotFound, rpctypes.ErrGRPCMemberNotFound},
	{member.ErrPeerURLExists, rpctypes.ErrGRPCPeerURLExist},
	{member.ErrBadURLs, rpctypes.ErrGRPCMemberBadURLs},
	{member.ErrNotLearner, rpctypes.ErrGRPCMemberNotLearner},
	{member.ErrLearners, errLearners},
	{member.ErrNotEnoughStarted, errLastMember},
	// Another member can answer.
	{member.ErrRemoved, rpctypes.ErrGRPCStopped},
	{member.ErrReplaced, rpctypes.ErrGRPCStopped},

	{sqlstore.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge},
	// The replica resolves unknown outcomes; one that still comes up here is, to
	// the client, a write that may or may not have taken effect.
	{sqlstore.ErrUncertain, rpctypes.ErrGRPCTimeout},
	{sqlstore.ErrClosed, rpctypes.ErrGRPCStopped},
	{sqlstore.ErrFull, rpctypes.ErrGRPCNoSpace},
	{sqlstore.ErrUnavailable, errDatabaseUnavailable},
}

// toGRPC converts err to the gRPC error of the answer: nil for nil, a gRPC status
// unchanged, and gRPC's status for context errors. An unknown error becomes an
// internal error without details.
func toGRPC(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if at, ok := errors.AsType[*history.CompactedTime](err); ok {
		return status.Error(codes.OutOfRange, rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted)+": "+at.Known())
	}
	for _, e := range grpcErrors {
		if errors.Is(err, e.is) {
			return e.answer
		}
	}
	var compacted *watch.CompactedError
	switch {
	case errors.Is(err, history.ErrBeforeFirst), errors.Is(err, history.ErrFutureTime):
		return status.Error(codes.OutOfRange, "sqlbrain: "+err.Error())
	case errors.As(err, &compacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, coder.ErrKeyTooLong):
		return status.Error(codes.InvalidArgument, "sqlbrain: "+strings.TrimPrefix(err.Error(), "coder: "))
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, context.Canceled.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	}
	return errInternal
}

// Answer returns the gRPC error that err, of a call of method, is answered with. It logs
// errors whose cause the answer does not name.
func Answer(ctx context.Context, log *slog.Logger, method string, err error) error {
	out := toGRPC(err)
	if _, own := status.FromError(err); own { // nil, or the handler's own words
		return out
	}
	level := slog.LevelDebug
	switch status.Code(out) {
	case codes.Internal:
		level = slog.LevelError
	case codes.Unavailable:
		level = slog.LevelWarn
	}
	if errors.Is(err, mvcc.ErrNotServing) {
		level = slog.LevelDebug // the monitor says so once, and not for every request
	}
	log.Log(ctx, level, "request failed", "method", method, "error", err)
	return out
}

// unsupported answers an RPC that this server does not have.
func unsupported(what string) error {
	return status.Error(codes.Unimplemented, fmt.Sprintf("sqlbrain: %s not supported yet", what))
}
