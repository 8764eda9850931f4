package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/console/kubernetes"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
)

const (
	// diffKeys bounds the keys that a diff keeps in memory, about 300 bytes each.
	diffKeys = 1_000_000
	// diffValues is how many values one statement reads. A value has up to 1.5 MiB by default.
	diffValues = 16
)

type diffCommand struct {
	*program
	from, to string
	archived archived
	yaml     bool
	output   output
}

func (p *program) newDiffCommand() *cobra.Command {
	c := &diffCommand{program: p, output: outputTable}
	cmd := &cobra.Command{
		Use:   "diff --at A [--and B] [PREFIX]",
		Short: "List the keys that differ between two moments, and print deleted objects of Kubernetes",
		Long: `List the keys below PREFIX that differ between two moments: which were created, changed or deleted,
and when that was last. Objects of Kubernetes are shown by kind and name. What was changed and
changed back is not listed.

With --yaml it prints the deleted objects as YAML for kubectl create -f -, as they were at A,
without what the API server sets: status, identity, owners. Objects that a controller made, as the
pods of a deployment, are left out: it makes them again. What is left out is named in comments.
Secrets are printed too.

It reads the log of changes between the moments, and changes nothing. It needs no running server.
With --from it reads a continuous backup in place of the database, from the base before the later
moment on: it fills a temporary SQLite file from it.`,
		Example: `  sqlbrain diff --at 2h /registry/ --data-dir /var/lib/sqlbrain
  sqlbrain diff --at 2026-11-27T15:00:00Z --and 10m --datastore 'mysql://user@db/sqlbrain?tls=true'
  sqlbrain diff --at 30m --yaml /registry/ --data-dir /var/lib/sqlbrain > deleted.yaml
  sqlbrain diff --from s3://backups/etcd --at 2h --and 1h /registry/`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), strings.Join(args, ""))
		},
	}
	p.needs(cmd, databaseFlags...)
	f := cmd.Flags()
	f.StringVar(&c.from, "at", "", "the earlier moment: "+atHelp)
	f.StringVar(&c.to, "and", "", "the later moment; now, if it is not given")
	c.archived.bind(f)
	f.BoolVar(&c.yaml, "yaml", false, "print the deleted objects of Kubernetes as YAML")
	addOutputFlag(cmd, &c.output)
	if err := cmd.MarkFlagRequired("at"); err != nil {
		panic(err) // the flag is there
	}
	return cmd
}

// difference is a key that changed between the moments.
type difference struct {
	Key      []byte `json:"key"`
	Change   string `json:"change"`   // created, changed or deleted
	Revision int64  `json:"revision"` // of its last change
	Time     string `json:"time"`     // of that
	Kind     string `json:"kind,omitempty"`
	Name     string `json:"name,omitempty"` // of an object of Kubernetes, with its namespace

	at      time.Time
	before  int64 // the mod revision at the earlier moment, 0 if it did not exist
	deleted bool  // at the later moment
	value   []byte
}

func (c *diffCommand) run(ctx context.Context, prefix string) error {
	now := time.Now() // "10m" counts from here, and not from when a backup was read
	var revisions []int64
	var times []time.Time
	for _, f := range []struct {
		flag string
		text *string
	}{{"at", &c.from}, {"and", &c.to}} {
		if *f.text == "" {
			continue
		}
		revision, at, err := parseMoment(f.flag, *f.text, now)
		switch {
		case err != nil:
			return err
		case at.IsZero():
			revisions = append(revisions, revision)
		default:
			times = append(times, at)
			*f.text = at.UTC().Format(time.RFC3339Nano)
		}
	}
	if !slices.IsSorted(revisions) || !slices.IsSortedFunc(times, time.Time.Compare) {
		return &usageError{fmt.Errorf("--at %s is later than --and %s", c.from, c.to)}
	}
	run := c.withPast
	if c.archived.url != "" {
		run = func(ctx context.Context, f func(*past) error) error { return c.archived.withPast(ctx, "and", c.to, f) }
	}
	return run(ctx, func(table *past) error {
		from, err := table.at(ctx, "at", c.from)
		if err != nil {
			return err
		}
		to, err := table.at(ctx, "and", c.to)
		if err != nil {
			return err
		}
		if from > to {
			return &usageError{fmt.Errorf("--at is revision %d, and later than --and, %d", from, to)}
		}
		changed, err := table.changed(ctx, prefix, from, to)
		if err == nil {
			err = c.print(ctx, table, changed)
		}
		if err != nil {
			return err
		}
		// Compaction may have removed values before they were read.
		mark, err := table.Mark(ctx)
		if err == nil && mark > from {
			err = fmt.Errorf("revision %d: %s meanwhile", from, rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted))
		}
		return err
	})
}

// changed returns the keys that begin with prefix and were changed in the revisions (from, to], in their order.
func (p *past) changed(ctx context.Context, prefix string, from, to int64) ([]*difference, error) {
	key, end := []byte{0}, []byte{0}
	if prefix != "" {
		key, end = []byte(prefix), []byte(clientv3.GetPrefixRangeEnd(prefix))
	}
	found := make(map[string]*difference)
	err := p.log.EachChange(ctx, key, end, from+1, to, func(change coder.Change, at time.Time) error {
		d := found[string(change.Key)]
		if d == nil {
			if len(found) == diffKeys {
				return fmt.Errorf("more than %d keys were changed: choose a longer prefix, or moments closer together", diffKeys)
			}
			d = &difference{Key: bytes.Clone(change.Key), before: change.PrevRevision}
			found[string(change.Key)] = d
		}
		d.Revision, d.at, d.deleted = change.Revision, at, change.Tombstone
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]*difference, 0, len(found))
	for _, d := range found {
		if d.before != 0 || !d.deleted { // else it came and went
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *difference) int { return bytes.Compare(a.Key, b.Key) })
	return all, nil
}

func (c *diffCommand) print(ctx context.Context, table *past, changed []*difference) error {
	if c.yaml {
		changed = slices.DeleteFunc(changed, func(d *difference) bool { return !d.deleted })
		slices.SortStableFunc(changed, func(a, b *difference) int { return cmp.Compare(rank(a.Key), rank(b.Key)) })
	}
	tw, lines := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0), json.NewEncoder(c.stdout)
	if !c.yaml && c.output == outputTable {
		if _, err := fmt.Fprintln(tw, "CHANGE\tREVISION\tTIME\tKIND\tNAME\tKEY"); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(changed, diffValues) {
		differ, err := table.read(ctx, some)
		if err != nil {
			return err
		}
		for _, d := range differ {
			switch {
			case c.yaml:
				err = c.printObject(d)
			case c.output == outputJSON:
				err = lines.Encode(d)
			default:
				_, err = fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\n", d.Change, d.Revision, d.Time, printable([]byte(d.Kind)),
					printable([]byte(d.Name)), printable(d.Key))
			}
			if err != nil {
				return err
			}
			d.value = nil
		}
	}
	return tw.Flush()
}

// rank is the order in which objects are created: namespaces and types before what is in them.
func rank(key []byte) int {
	for i, part := range []string{"/namespaces/", "/customresourcedefinitions/"} {
		if bytes.Contains(key, []byte(part)) {
			return i
		}
	}
	return 2
}

// read reads the values of some keys, and returns those that differ, with what they are.
func (p *past) read(ctx context.Context, some []*difference) ([]*difference, error) {
	keys, revisions := make([][]byte, 0, 2*len(some)), make([]int64, 0, 2*len(some))
	for _, d := range some {
		keys, revisions = append(keys, d.Key, d.Key), append(revisions, d.before, d.Revision)
	}
	records, err := history.Versions(ctx, p.store, keys, revisions)
	if err != nil {
		return nil, err
	}
	var differ []*difference
	for i, d := range some {
		older, newer := records[2*i], records[2*i+1]
		if older == nil && d.before != 0 || newer == nil && !d.deleted {
			return nil, fmt.Errorf("a version of %q is missing: compaction may have removed it meanwhile", d.Key)
		}
		d.Time = history.FormatTime(d.at)
		switch {
		case d.before == 0:
			d.Change, d.value = "created", newer.Value
		case d.deleted:
			d.Change, d.value = "deleted", older.Value
		case older.CreateRevision == newer.CreateRevision && bytes.Equal(older.Value, newer.Value):
			continue
		default:
			d.Change, d.value = "changed", newer.Value
		}
		if fields, err := kubernetes.Fields(d.value); err == nil {
			d.Kind, d.Name = kubernetes.Describe(fields)
		}
		differ = append(differ, d)
	}
	return differ, nil
}

// printObject prints a deleted object as a YAML document, or a comment that says why it is left out.
func (c *diffCommand) printObject(d *difference) error {
	leaveOut := func(why string) error {
		_, err := fmt.Fprintf(c.stdout, "# left out: %s: %s\n", printable(d.Key), printable([]byte(why)))
		return err
	}
	fields, err := kubernetes.Fields(d.value)
	if err != nil {
		return leaveOut(err.Error())
	}
	if controller := kubernetes.ForCreate(fields); controller != "" {
		return leaveOut(controller + " makes it again")
	}
	text, err := kubernetes.YAML(fields)
	if err != nil {
		return leaveOut(err.Error())
	}
	_, err = fmt.Fprintf(c.stdout, "---\n# %s, deleted at revision %d, %s\n%s", printable(d.Key), d.Revision,
		d.Time, text)
	return err
}

// printable returns text as one line without control characters, quoted if it has any.
func printable(text []byte) string {
	quoted := strconv.Quote(string(text))
	if plain := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`); plain == string(text) {
		return plain
	}
	return quoted
}
