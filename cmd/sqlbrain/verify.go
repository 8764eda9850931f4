package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/server/backup"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

type verifyCommand struct {
	*program
	archived archived
	restore  bool
	output   output
}

func (p *program) newVerifyCommand() *cobra.Command {
	c := &verifyCommand{program: p, output: outputTable}
	cmd := &cobra.Command{
		Use:   "verify --from URL",
		Short: "Read all of a continuous backup, and say which moments can be restored",
		Long: `Read all of a continuous backup, and say which moments can be restored. It checks every file, and
that none is missing. The exit code is 1 if a file is damaged.

With --restore it also restores the end of the backup into a temporary SQLite file, and compares
its keys and their history with the database: the hash is that of etcdctl endpoint hashkv. Servers
may serve the database.`,
		Example: `  sqlbrain backup verify --from s3://backups/etcd
  sqlbrain backup verify --from file:///backups/now --restore --data-dir /var/lib/sqlbrain`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	p.needs(cmd, databaseFlags...)
	f := cmd.Flags()
	c.archived.bind(f)
	f.BoolVar(&c.restore, "restore", false, "restore the end of the backup, and compare it with the database")
	addOutputFlag(cmd, &c.output)
	if err := cmd.MarkFlagRequired("from"); err != nil {
		panic(err) // the flag is there
	}
	return cmd
}

func (c *verifyCommand) run(ctx context.Context) error {
	source, err := c.archived.source()
	if err != nil {
		return err
	}
	spans, damages, err := backup.Verify(ctx, source)
	if err != nil {
		return err
	}
	var compared, live int64
	if c.restore && len(damages) == 0 {
		if compared, live, err = c.compare(ctx); err != nil {
			return err
		}
	}
	if err := c.print(source.Place, spans, damages, compared, live); err != nil {
		return err
	}
	if len(damages) > 0 {
		return fmt.Errorf("%w: see above", backup.ErrDamaged)
	}
	return nil
}

func (c *verifyCommand) print(from backup.Place, spans []backup.Span, damages []error,
	compared, live int64) (err error) {
	if c.output == outputJSON {
		texts := make([]string, len(damages))
		for i, damage := range damages {
			texts[i] = damage.Error()
		}
		return json.NewEncoder(c.stdout).Encode(struct {
			From     string        `json:"from"`
			Spans    []backup.Span `json:"spans"`
			Damages  []string      `json:"damages"`
			Compared int64         `json:"compared_revision,omitempty"`
			Live     int64         `json:"database_revision,omitempty"`
		}{from.String(), spans, texts, compared, live})
	}
	line := func(form string, values ...any) {
		_, werr := fmt.Fprintf(c.stdout, form+"\n", values...)
		err = errors.Join(err, werr)
	}
	line("from        %s", from)
	for _, s := range spans {
		line("revisions   %d to %d, %s to %s", s.First, s.Last, history.FormatTime(s.From), history.FormatTime(s.To))
		if !s.Until.IsZero() {
			line("complete    until %s: no later commit was found", history.FormatTime(s.Until))
		}
	}
	for _, damage := range damages {
		line("damaged     %v", damage)
	}
	if compared > 0 {
		line("compared    %s is equal at revision %d, and has %d newer ones", c.settings.URL(), compared, live-compared)
	}
	return err
}

// compare restores the end of the backup, and compares it with the database. It returns the newest revision of each.
func (c *verifyCommand) compare(ctx context.Context) (revision, newest int64, err error) {
	err = c.archived.withStore(ctx, "at", "", func(restored sqlstore.Store) error {
		return c.withStore(ctx, sqlstore.Options{ReadOnly: true, Shared: true}, func(store sqlstore.Store) error {
			token, _, err := fence.LoadToken(ctx, restored)
			live, _, lerr := fence.LoadToken(ctx, store)
			if err = errors.Join(err, lerr); err != nil {
				return err
			}
			if revision, newest = token.Revision, live.Revision; newest < revision {
				return fmt.Errorf("%s is at revision %d, and the backup at %d", c.settings.URL(), newest, revision)
			}
			for {
				compacted := int64(0)
				for _, s := range []sqlstore.Store{store, restored} {
					mark, err := compact.NewMark(s).Read(ctx)
					if err != nil {
						return err
					}
					compacted = max(compacted, mark)
				}
				if compacted > revision {
					return fmt.Errorf("the backup ends at revision %d, and the history of the database begins at %d", revision,
						compacted)
				}
				has, err := export.HashTable(ctx, store, revision, compacted, snapshot.EncodeValue)
				if errors.Is(err, mvcc.ErrCompacted) {
					continue // while it was read
				}
				if err != nil {
					return err
				}
				want, err := export.HashTable(ctx, restored, revision, compacted, snapshot.EncodeValue)
				if err == nil && has != want {
					err = fmt.Errorf("the backup differs from %s at revision %d: hashes %d and %d", c.settings.URL(), revision, want,
						has)
				}
				return err
			}
		})
	})
	return revision, newest, err
}
