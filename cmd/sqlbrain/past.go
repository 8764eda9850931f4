package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/backup"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
)

// readTimeout bounds one page of what a command reads of the past.
const readTimeout = time.Minute

// atHelp is the help of flags that take a moment.
const atHelp = "a revision, a time like 2026-11-27T15:04:05Z, or how long ago, like 10m"

// past reads what a table that this process does not serve held at earlier revisions. Servers may serve it and write
// to it. It implements read.Node at the revision that was the newest when it was opened.
type past struct {
	store    sqlstore.Store
	revision int64
	mark     *compact.Mark
	log      *history.Log
	reader   *read.Reader
}

// withPast runs f on the settings' database.
func (p *program) withPast(ctx context.Context, f func(*past) error) error {
	return p.withStore(ctx, sqlstore.Options{ReadOnly: true, Shared: true}, func(store sqlstore.Store) error {
		return withPastOf(ctx, store, f)
	})
}

func withPastOf(ctx context.Context, store sqlstore.Store, f func(*past) error) error {
	if err := repair.RefuseUnfinished(ctx, store); err != nil {
		return err
	}
	table := &past{store: store, mark: compact.NewMark(store)}
	table.log = history.New(store, table.Mark)
	token, _, err := fence.LoadToken(ctx, store)
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return errors.New("the database is empty: no server has served it")
	}
	if err != nil {
		return err
	}
	table.revision = token.Revision
	view, err := keyspace.New(keyspace.Config{Revision: token.Revision})
	if err != nil {
		return err
	}
	table.reader = read.New(table, store, view, mvcc.NewTimeout(readTimeout), read.MaxSorted)
	return f(table)
}

// archived names a continuous backup.
type archived struct {
	url, identity string
	tempDir       string // "": the system's
}

// namesPlace reports whether text is the URL of a place of continuous backups.
func namesPlace(text string) bool {
	return strings.HasPrefix(text, "file:") || strings.HasPrefix(text, "s3:")
}

// bind adds its flags.
func (a *archived) bind(f *pflag.FlagSet) {
	f.StringVar(&a.url, "from", "", "the `URL` of a continuous backup")
	f.StringVar(&a.identity, "backup-identity", "", "with --from of an encrypted backup: `file` with an identity of age")
	f.StringVar(&a.tempDir, "tmpdir", "", "with --from: `directory` for temporary files (default: the system's)")
}

// open opens the backup at a moment that a flag names, at its end if that is empty.
func (a *archived) open(ctx context.Context, flag, text string) (*backup.Backup, error) {
	source, err := a.source()
	if err != nil {
		return nil, err
	}
	var moment backup.Moment
	if text != "" {
		if moment.Revision, moment.Time, err = parseMoment(flag, text, time.Now()); err != nil {
			return nil, err
		}
	}
	b, err := backup.Open(ctx, source, moment)
	if errors.Is(err, backup.ErrDamaged) {
		err = fmt.Errorf("%w; sqlbrain backup verify says which moments can be restored", err)
	}
	return b, err
}

// source returns what the flags name.
func (a *archived) source() (backup.Source, error) {
	place, err := backup.OpenPlace(a.url, &workload{})
	if err != nil {
		return backup.Source{}, &usageError{fmt.Errorf("--from %w", err)}
	}
	identities, err := backup.Identities(a.identity)
	if err != nil {
		return backup.Source{}, &usageError{fmt.Errorf("--backup-identity: %w", err)}
	}
	return backup.Source{Place: place, Identities: identities, TempDir: a.tempDir}, nil
}

// withPast runs f on a temporary SQLite file that is filled from the backup at a moment.
func (a *archived) withPast(ctx context.Context, flag, text string, f func(*past) error) error {
	return a.withStore(ctx, flag, text, func(store sqlstore.Store) error { return withPastOf(ctx, store, f) })
}

// withStore runs f on a temporary SQLite file that is filled from the backup at a moment.
func (a *archived) withStore(ctx context.Context, flag, text string, f func(sqlstore.Store) error) (err error) {
	b, err := a.open(ctx, flag, text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	dir, err := os.MkdirTemp(a.tempDir, "sqlbrain-past-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := url.URL{Path: filepath.ToSlash(filepath.Join(dir, "past.db"))}
	u, err := sqlstore.ParseURL("sqlite://" + path.EscapedPath())
	if err != nil {
		return err
	}
	db, err := engines.OpenDB(u, sqlstore.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(migrations.Up(ctx, db.DialectName(), db.SQL()), db.Close()); err != nil {
		return err
	}
	store, err := engines.Open(ctx, u, sqlstore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := b.Load(ctx, store, snapshot.LoadOptions{}); err != nil {
		return err
	}
	return f(store)
}

// parseMoment reads a flag that names a revision, or a time, "10m" before now: then revision is 0.
func parseMoment(flag, text string, now time.Time) (revision int64, at time.Time, err error) {
	if revision, err = strconv.ParseInt(text, 10, 64); err == nil {
		if revision < 1 {
			return 0, at, &usageError{fmt.Errorf("--%s %s: revisions begin at 1", flag, text)}
		}
		return revision, at, nil
	}
	if at, err = history.ParseTime(text, now); err != nil {
		return 0, at, &usageError{fmt.Errorf("--%s %s is no revision, and %w", flag, text, err)}
	}
	if at.IsZero() { // Kubernetes' time that is not set; Moment has it for the end
		return 0, at, &usageError{fmt.Errorf("--%s %s is no time of a commit", flag, text)}
	}
	return 0, at, nil
}

// at returns the revision that a flag means, the newest if it is empty. Errors have etcd's texts where it has some.
func (p *past) at(ctx context.Context, flag, text string) (int64, error) {
	if text == "" {
		return p.revision, nil
	}
	revision, moment, err := parseMoment(flag, text, time.Now())
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		revision, err = p.log.RevisionAt(ctx, moment, p.revision)
		if err != nil {
			return 0, fmt.Errorf("--%s %s: %w", flag, text, err)
		}
		return revision, nil
	}
	mark, err := p.Mark(ctx)
	switch {
	case err != nil:
		return 0, err
	case revision > p.revision:
		return 0, fmt.Errorf("--%s %s: %s: the newest is %d", flag, text, rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev),
			p.revision)
	case revision < mark:
		return 0, fmt.Errorf("--%s %s: %s: the first that can be read is %d", flag, text,
			rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted), mark)
	}
	return revision, nil
}

// Revision implements read.Node.
func (p *past) Revision() int64 { return p.revision }

// CompactRevision implements read.Node.
func (p *past) CompactRevision() int64 { return p.mark.Revision() }

// ReadRevision implements read.Node.
func (p *past) ReadRevision(context.Context, auth.Permit, bool) (int64, error) {
	return p.revision, nil
}

// Mark implements read.Node by reading the compaction mark.
func (p *past) Mark(ctx context.Context) (int64, error) {
	revision, err := p.mark.Read(ctx)
	p.mark.Raise(revision)
	return revision, err
}

// Await implements read.Node: the table has all revisions.
func (p *past) Await(context.Context, int64) error { return nil }

// CountRange implements read.Node.
func (p *past) CountRange(bool) {}
