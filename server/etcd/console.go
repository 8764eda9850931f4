package etcd

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/watch"
)

// ConsoleKeys implements console.Keys: reads that etcd has no RPC for, guarded like a range.
type ConsoleKeys struct {
	browser Browser
	watched func(most int) (ranges []watch.Watched, count int)
	guard   *guard.Guard
	audit   *auditor
	logout  func(context.Context) error
	log     *slog.Logger
}

// fromConsole turns the metadata of an outgoing call into that of one that a client
// made.
func fromConsole(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return link.WithRequestID(guard.From(metadata.NewIncomingContext(ctx, md), guard.Client))
}

func (c *ConsoleKeys) AuthEnabled() bool { return c.guard.Enabled() }

func (c *ConsoleKeys) Admit(ctx context.Context) error {
	ctx = fromConsole(ctx)
	_, err := c.guard.AnyUser(ctx)
	return c.answer(ctx, "console status", nil, nil, err)
}

func (c *ConsoleKeys) Administer(ctx context.Context) error {
	ctx = fromConsole(ctx)
	_, err := c.guard.Admin(ctx)
	return c.answer(ctx, "console doctor", nil, nil, err)
}

func (c *ConsoleKeys) Logout(ctx context.Context) error {
	return Answer(ctx, c.log, "console logout", c.logout(fromConsole(ctx)))
}

func (c *ConsoleKeys) Children(ctx context.Context, q *read.ChildrenRequest) (*read.Children, error) {
	kr := q.KeyRange()
	ctx = fromConsole(ctx)
	permit, reading := c.guard.Range(kr.Key, kr.End)
	q.Prefix, q.After = shorten(q.Prefix), shorten(q.After)
	res, err := c.browser.Children(ctx, permit, q)
	return res, c.answer(ctx, "console keys", kr.Key, kr.End, reading.Done(err))
}

func (c *ConsoleKeys) KeyHistory(ctx context.Context, q *read.KeyHistoryRequest) (*read.KeyHistory, error) {
	ctx = fromConsole(ctx)
	permit, reading := c.guard.Range(q.Key, nil)
	res, err := c.browser.KeyHistory(ctx, permit, q)
	return res, c.answer(ctx, "console history", q.Key, nil, reading.Done(err))
}

func (c *ConsoleKeys) RevisionAt(ctx context.Context, at time.Time) (revision int64, err error) {
	ctx = fromConsole(ctx)
	permit, err := c.guard.AnyUser(ctx)
	if err == nil {
		revision, err = c.browser.RevisionAt(ctx, permit, at)
	}
	return revision, c.answer(ctx, "console time", nil, nil, err)
}

func (c *ConsoleKeys) CommitOf(ctx context.Context, revision int64) (commit history.Commit, err error) {
	ctx = fromConsole(ctx)
	permit, err := c.guard.AnyUser(ctx)
	if err == nil {
		commit, err = c.browser.CommitOf(ctx, permit, revision)
	}
	return commit, c.answer(ctx, "console time", nil, nil, err)
}

func (c *ConsoleKeys) Watched(ctx context.Context, most int) (ranges []watch.Watched, count int, err error) {
	ctx = fromConsole(ctx)
	if _, err = c.guard.Admin(ctx); err == nil {
		ranges, count = c.watched(most)
	}
	return ranges, count, c.answer(ctx, "console watchers", nil, nil, err)
}

// answer returns the gRPC error for err, and records it if it is a denial.
func (c *ConsoleKeys) answer(ctx context.Context, method string, key, end []byte, err error) error {
	err = Answer(ctx, c.log, method, err)
	c.audit.denied(ctx, method, err, func() []slog.Attr { return keyRange(key, end) })
	return err
}
