package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Joins reports whether a system can have a further member: SQLite's file is one process's, and kine has none.
func (s System) Joins() bool { return s.Product == Etcd || s.Product == Sqlbrain && s.Engine.Server() }

// Join starts a further member, and makes it leave once it has served a linearizable read: in etcd it is a learner first,
// which is promoted when it has caught up.
func (r *Running) Join(ctx context.Context) (err error) {
	c, err := r.Connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	joined := &Running{System: r.System, env: r.env, first: r, dir: filepath.Join(r.dir, "joined")}
	defer func() { err = errors.Join(err, joined.Close()) }()
	if err := os.Mkdir(joined.dir, 0o755); err != nil {
		return err
	}
	if r.System.Product == Sqlbrain {
		if err := joined.start(ctx); err != nil {
			return err
		}
		status, err := c.Status(ctx, joined.endpoint())
		if err == nil {
			_, err = c.MemberRemove(ctx, status.Header.MemberId)
		}
		return err
	}
	if err := joined.reserve(); err != nil {
		return err
	}
	added, err := c.MemberAddAsLearner(ctx, []string{joined.peerURL()})
	if err != nil {
		return err
	}
	remove := func(ctx context.Context) error {
		_, err := c.MemberRemove(ctx, added.Member.ID)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		return err
	}
	if err := joined.launch(); err != nil {
		return errors.Join(err, remove(ctx))
	}
	err = joined.process.Await(ctx, readyWait, readyPoll, func(ctx context.Context) error {
		_, err := c.MemberPromote(ctx, added.Member.ID)
		return err
	})
	if err == nil {
		err = joined.await(ctx)
	}
	// It ends after it is removed: it is one of two voters. Right after it has become one, requests may time out.
	return errors.Join(err, joined.process.Await(ctx, readyWait, readyPoll, remove))
}

// Snapshot writes a snapshot of the server of c.
func Snapshot(ctx context.Context, c *clientv3.Client, to io.Writer) error {
	from, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // it is only read
	_, err = io.Copy(to, from)
	return err
}

// Backup writes a backup into a file, and removes it: by sqlbrain's own command, else with a snapshot that c gets.
func (r *Running) Backup(ctx context.Context, c *clientv3.Client) error {
	path := filepath.Join(r.dir, "backup")
	defer os.Remove(path) //nolint:errcheck // the directory is removed with the system
	if r.System.Product != Sqlbrain {
		to, err := os.Create(path)
		if err != nil {
			return err
		}
		return errors.Join(Snapshot(ctx, c, to), to.Sync(), to.Close())
	}
	out, err := exec.CommandContext(ctx, r.env.Programs.Sqlbrain, "backup", "--datastore", r.datastore(), "--to", path).
		CombinedOutput()
	if err != nil {
		err = fmt.Errorf("backup: %w\n%s", err, out)
	}
	return err
}
