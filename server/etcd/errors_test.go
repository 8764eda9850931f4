package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// backendAnswers is what etcd answers, written out.
var backendAnswers = map[string]struct {
	err  error
	code codes.Code
	text string
}{
	"ErrCompacted": {mvcc.ErrCompacted, codes.OutOfRange,
		"etcdserver: mvcc: required revision has been compacted"},
	"ErrFutureRevision": {mvcc.ErrFutureRevision, codes.OutOfRange,
		"etcdserver: mvcc: required revision is a future revision"},
	"ErrKeyNotFound": {mvcc.ErrKeyNotFound, codes.InvalidArgument, "etcdserver: key not found"},
	"ErrDuplicateKey": {mvcc.ErrDuplicateKey, codes.InvalidArgument,
		"etcdserver: duplicate key given in txn request"},
	"ErrLeaseNotFound":     {mvcc.ErrLeaseNotFound, codes.NotFound, "etcdserver: requested lease not found"},
	"ErrLeaseExists":       {mvcc.ErrLeaseExists, codes.FailedPrecondition, "etcdserver: lease already exists"},
	"ErrLeaseTTLTooLarge":  {mvcc.ErrLeaseTTLTooLarge, codes.OutOfRange, "etcdserver: too large lease TTL"},
	"ErrNoSpace":           {quota.ErrNoSpace, codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded"},
	"ErrCorrupt":           {quota.ErrCorrupt, codes.DataLoss, "etcdserver: corrupt cluster"},
	"ErrNotServing":        {mvcc.ErrNotServing, codes.Unavailable, "etcdserver: no leader"},
	"ErrLeaderUnreachable": {mvcc.ErrLeaderUnreachable, codes.Unavailable, "etcdserver: no leader"},
	"ErrNotLeader":         {mvcc.ErrNotLeader, codes.FailedPrecondition, "etcdserver: not leader"},
	"ErrLeaderLost":        {mvcc.ErrLeaderLost, codes.Unavailable, "etcdserver: leader changed"},
	"ErrTimeout":           {mvcc.ErrTimeout, codes.Unavailable, "etcdserver: request timed out"},
	"ErrTooManyRequests":   {mvcc.ErrTooManyRequests, codes.ResourceExhausted, "etcdserver: too many requests"},
	"ErrSortTooLarge": {mvcc.ErrSortTooLarge, codes.ResourceExhausted,
		"sqlbrain: the range is too large to be sorted for a stream; ask for it in key order, or for a smaller range"},
	"ErrTooLarge": {mvcc.ErrTooLarge, codes.InvalidArgument, "etcdserver: request is too large"},
}

func TestEveryErrorOfTheStoreHasAnAnswer(t *testing.T) {
	for _, name := range exportedErrors(t, "../mvcc") {
		switch name {
		case "ErrNothingToRecover", "ErrFenceMoved", "ErrRestoring", "ErrNotEmpty":
			continue // of commands, and of the start; no request ends with them
		}
		want, ok := backendAnswers[name]
		if !ok {
			t.Errorf("mvcc.%s has no answer in errors.go that this test knows", name)
			continue
		}
		for _, err := range []error{want.err, fmt.Errorf("deep: %w", fmt.Errorf("deeper: %w", want.err))} {
			st := status.Convert(toGRPC(err))
			require.Equal(t, want.code, st.Code(), name)
			require.Equal(t, want.text, st.Message(), name)
		}
	}
}

// exportedErrors returns the names of the sentinels that the package in dir declares.
func exportedErrors(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, s := range gen.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(n.Name, "Err") {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	require.NotEmpty(t, names)
	return names
}

func TestErrorsAreAnsweredWithTheirCodes(t *testing.T) {
	secret := errors.New("Access denied for user 'root'@'10.0.0.1' (using password: YES)")
	tooLong := coder.CheckKey(make([]byte, 4000))
	tests := []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{"canceled", fmt.Errorf("x: %w", context.Canceled), codes.Canceled, "context canceled"},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "context deadline exceeded"},
		{"timeout wins over its cause", fmt.Errorf("%w: %w", mvcc.ErrTimeout, context.DeadlineExceeded), codes.Unavailable,
			"etcdserver: request timed out"},
		{"not serving wins over its cause", fmt.Errorf("%w: %w", mvcc.ErrNotServing, sqlstore.ErrUnavailable),
			codes.Unavailable, "etcdserver: no leader"},
		{"status as it is", unsupported("snapshots are"), codes.Unimplemented, "sqlbrain: snapshots are not supported yet"},
		{"key too long", tooLong, codes.InvalidArgument, "sqlbrain: key is too long: 8013 bytes encoded, at most 3072 fit"},
		{"compacted history", fmt.Errorf("x: %w", &watch.CompactedError{Revision: 3}), codes.OutOfRange,
			"etcdserver: mvcc: required revision has been compacted"},
		{"row too large", sqlstore.ErrTooLarge, codes.InvalidArgument, "etcdserver: request is too large"},
		{"outcome unknown", sqlstore.ErrUncertain, codes.Unavailable, "etcdserver: request timed out"},
		{"store closed", sqlstore.ErrClosed, codes.Unavailable, "etcdserver: server stopped"},
		{"database gone", fmt.Errorf("%w: %w", sqlstore.ErrUnavailable, secret), codes.Unavailable,
			"sqlbrain: the database is unavailable; the server's log says why"},
		{"database full", fmt.Errorf("%w: %w", sqlstore.ErrFull, secret), codes.ResourceExhausted,
			"etcdserver: mvcc: database space exceeded"},
		{"unexpected", secret, codes.Internal, "sqlbrain: internal error; the server's log says more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			st := status.Convert(toGRPC(tt.err))
			require.Equal(t, tt.code, st.Code())
			require.Equal(t, tt.text, st.Message())
		})
	}
	require.NoError(t, toGRPC(nil))
}

func TestCausesAreLoggedNotSent(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	err := Answer(context.Background(), log, "/m", errors.New("access denied for root"))
	require.NotContains(t, err.Error(), "root")
	require.Contains(t, out.String(), "access denied for root")
}
