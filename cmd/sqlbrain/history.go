package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// historyPage and historyBytes bound what is in memory at a time.
const (
	historyPage  = 100
	historyBytes = 8 << 20
)

type historyCommand struct {
	*program
	at     string
	limit  int
	output output
}

func (p *program) newHistoryCommand() *cobra.Command {
	c := &historyCommand{program: p, output: outputTable}
	cmd := &cobra.Command{
		Use:   "history KEY",
		Short: "List the versions of a key: when it was created, changed and deleted",
		Long: `List the versions of a key, newest first: when it was created, changed and deleted. Versions that
are compacted are not listed, except for the one that was current at the compact revision.

It reads the database directly and changes nothing: it needs no running server.`,
		Example: `  sqlbrain history /registry/deployments/default/web --data-dir /var/lib/sqlbrain
  sqlbrain history config --at 24h --datastore 'mysql://user:password@db.example/sqlbrain?tls=true'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), []byte(args[0])) },
	}
	p.needs(cmd, databaseFlags...)
	cmd.Flags().StringVar(&c.at, "at", "", "list the versions up to a moment: "+atHelp)
	cmd.Flags().IntVar(&c.limit, "limit", 0, "most versions that are listed (0: all)")
	addOutputFlag(cmd, &c.output)
	return cmd
}

// versionLine is a version of a key. Time is empty where it is not known.
type versionLine struct {
	Revision int64  `json:"revision"`
	Time     string `json:"time,omitempty"`
	Change   string `json:"change"` // created, changed or deleted
	Version  int64  `json:"version"`
	Lease    string `json:"lease,omitempty"` // in hexadecimal, as etcdctl writes it
	Bytes    int    `json:"bytes"`
}

func (c *historyCommand) run(ctx context.Context, key []byte) error {
	if c.limit < 0 {
		return &usageError{errors.New("--limit must not be negative")}
	}
	return c.withPast(ctx, func(table *past) error {
		newest, err := table.at(ctx, "at", c.at)
		if err != nil {
			return err
		}
		tw := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		lines := json.NewEncoder(c.stdout)
		if c.output == outputTable {
			if _, err := fmt.Fprintln(tw, "REVISION\tTIME\tCHANGE\tVERSION\tLEASE\tBYTES"); err != nil {
				return err
			}
		}
		written := 0
		for before := newest + 1; ; {
			page := historyPage
			if c.limit > 0 {
				page = min(page, c.limit-written)
			}
			got, err := table.reader.KeyHistory(ctx, auth.System,
				&read.KeyHistoryRequest{Key: key, Before: before, Limit: page, MaxBytes: historyBytes})
			if err != nil {
				return err
			}
			for i, rec := range got.Versions {
				v := lineOf(rec, got.Times[i])
				if c.output == outputJSON {
					err = lines.Encode(v)
				} else {
					_, err = fmt.Fprintf(tw, "%d\t%s\t%s\t%d\t%s\t%d\n", v.Revision, v.Time, v.Change, v.Version, v.Lease, v.Bytes)
				}
				if err != nil {
					return err
				}
				before = rec.ModRevision
			}
			if written += len(got.Versions); !got.More || written == c.limit {
				return tw.Flush()
			}
		}
	})
}

func lineOf(rec *coder.Record, at time.Time) versionLine {
	v := versionLine{Revision: rec.ModRevision, Time: history.FormatTime(at), Version: rec.Version,
		Change: history.ChangeOf(rec.Version, rec.Tombstone), Bytes: len(rec.Value)}
	if rec.Lease != 0 {
		v.Lease = strconv.FormatInt(rec.Lease, 16)
	}
	return v
}
