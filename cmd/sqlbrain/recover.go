package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func (p *program) newRecoverCommand() *cobra.Command {
	output := outputTable
	c := recoverCommand{program: p}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Let the servers continue after the database lost committed data, or was restored",
		Long: `Let the servers continue after the database lost committed data, or was restored from a backup.

A server that finds less in the database than it has acknowledged (for instance because an
asynchronous replica was promoted) refuses to serve: it would assign the lost revisions again, and
clients that have seen them would take new data for old. recover raises the revision far above every
revision that was ever assigned, and marks everything below as compacted. Watches and lists from an
old revision then end with that error, and clients start again. Lost data stays lost.

A server records the loss in the database, so that no server serves after a restart either. recover
raises the revision from the recorded one, and removes the record. Stop all servers first: with
--yes, recover asks every member that did not shut down cleanly to prove that it runs, waits a few
seconds for the proof, and changes nothing if one does. --force skips that.

recover shows what the database holds, and changes nothing unless --yes is given.`,
		Example: `  sqlbrain recover --datastore 'mysql://user:password@db.example/sqlbrain?tls=true'
  sqlbrain recover --datastore 'mysql://user:password@db.example/sqlbrain?tls=true' --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), output) },
	}
	p.needs(cmd, databaseFlags...)
	cmd.Flags().Int64Var(&c.bump, "bump-revision", repair.DefaultBump,
		"how much to raise the revision by; more than may have been lost, earlier raises included: 2000000000 or more if "+
			"recover or restore raised it since the backup")
	cmd.Flags().BoolVar(&c.compact, "mark-compacted", true,
		"mark everything below the new revision as compacted; without it, clients continue from revisions that may have "+
			"been lost")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "really do it; no server may be running")
	cmd.Flags().BoolVar(&c.force, "force", false, "with --yes: do it although members may be running")
	addOutputFlag(cmd, &output)
	return cmd
}

type recoverCommand struct {
	*program
	bump                int64
	compact, yes, force bool
}

func (c *recoverCommand) run(ctx context.Context, o output) error {
	if c.bump < 1 {
		return &usageError{errors.New("--bump-revision must be at least 1")}
	}
	return c.withStore(ctx, sqlstore.Options{}, func(store sqlstore.Store) error { return c.recover(ctx, store, o) })
}

func (c *recoverCommand) recover(ctx context.Context, store sqlstore.Store, o output) error {
	found, err := repair.Examine(ctx, store)
	if err != nil {
		return err
	}
	next, err := found.Plan(c.bump, c.compact)
	if err != nil {
		return err
	}
	if c.yes {
		if !c.force {
			if err := refuseRunning(ctx, store, ", or repeat with --force"); err != nil {
				return err
			}
		}
		if err := found.Recover(ctx, store, next); err != nil {
			return err
		}
	}
	r := newRecoverReport(c.settings.URL().String(), found, next, c.yes)
	if o == outputJSON {
		return json.NewEncoder(c.stdout).Encode(r)
	}
	return r.writeTable(c.stdout)
}

// refuseRunning fails if a member's process runs, and names it. A server that runs
// may write rows that the command does not see, and would not know the new revision. other names what
// else the user can do than stop the members.
func refuseRunning(ctx context.Context, store sqlstore.Store, other string) error {
	running, err := member.ListRunning(ctx, store)
	if err != nil {
		return fmt.Errorf("looking for running members: %w", err)
	}
	if len(running) == 0 {
		return nil
	}
	const most = 5
	var names []string
	for _, r := range running[:min(most, len(running))] {
		names = append(names, r.String())
	}
	if more := len(running) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("nothing was changed, because members are running: %s; stop them first%s",
		strings.Join(names, "; "), other)
}

// recoverReport is what recover answers.
type recoverReport struct {
	Datastore string `json:"datastore"`
	// Found is the state before.
	Found recoverFound `json:"found"`
	// Next is what was written, or would be.
	Next     recoverState `json:"next"`
	Problems []string     `json:"problems"`
	Done     bool         `json:"done"`
}

type recoverFound struct {
	Token           *recoverState `json:"token,omitempty"` // none: the fence row is missing
	CompactRevision int64         `json:"compact_revision"`
	NewestLog       int64         `json:"newest_log_row"`
	NewestIndex     int64         `json:"newest_index_row,omitempty"`
	NewestVersion   int64         `json:"newest_version_row,omitempty"`
	Keys            int64         `json:"keys"`
}

type recoverState struct {
	Term            int64 `json:"term"`
	Revision        int64 `json:"revision"`
	Sequence        int64 `json:"sequence"`
	CompactRevision int64 `json:"compact_revision"`
}

func newRecoverReport(datastore string, f *repair.Findings, next repair.Recovered, done bool) *recoverReport {
	state := func(c coder.FenceToken, compacted int64) recoverState {
		return recoverState{Term: c.Term, Revision: c.Revision, Sequence: c.Sequence, CompactRevision: compacted}
	}
	r := &recoverReport{
		Datastore: datastore,
		Found: recoverFound{
			CompactRevision: f.CompactRevision, NewestLog: f.NewestLog, NewestIndex: f.NewestIndex,
			NewestVersion: f.NewestVersion, Keys: f.Keys,
		},
		Next: state(next.Token, next.CompactRevision), Problems: f.Problems, Done: done,
	}
	if f.Token != nil {
		found := state(*f.Token, f.CompactRevision)
		r.Found.Token = &found
	}
	if r.Problems == nil {
		r.Problems = []string{}
	}
	return r
}

func (r *recoverReport) writeTable(w io.Writer) error {
	token := "missing"
	if c := r.Found.Token; c != nil {
		token = fmt.Sprintf("term %d, revision %d, sequence %d", c.Term, c.Revision, c.Sequence)
	}
	compacted := "nothing"
	if r.Found.CompactRevision >= 0 {
		compacted = fmt.Sprintf("below revision %d", r.Found.CompactRevision)
	}
	lines := []string{
		"datastore    " + r.Datastore,
		"fence row    " + token,
		fmt.Sprintf("newest rows  log %d", r.Found.NewestLog),
		"compacted    " + compacted,
		fmt.Sprintf("keys         %d", r.Found.Keys),
	}
	if r.Found.NewestIndex > 0 {
		lines[2] += fmt.Sprintf(", index %d", r.Found.NewestIndex)
	}
	if r.Found.NewestVersion > 0 {
		lines[2] += fmt.Sprintf(", versions %d", r.Found.NewestVersion)
	}
	for _, p := range r.Problems {
		lines = append(lines, "problem      "+p)
	}
	did := "would be"
	if r.Done {
		did = "is now"
	}
	lines = append(lines, fmt.Sprintf("new state    the revision %s %d, the term %d", did, r.Next.Revision, r.Next.Term))
	if r.Next.CompactRevision == r.Next.Revision {
		lines = append(lines, fmt.Sprintf("             everything below %s compacted: watches and lists from an old "+
			"revision start again", did))
	} else {
		lines = append(lines, "             nothing is compacted: clients that have seen a lost revision do not learn of it")
	}
	if !r.Done {
		lines = append(lines, "Nothing was changed. Stop all servers, then repeat with --yes.")
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}
