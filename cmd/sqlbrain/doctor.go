package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/doctor"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Connections that a node opens by default: see sqlstore.Options.
const (
	defaultReadConns = 32
	writeConns       = 4
)

func (p *program) newDoctorCommand() *cobra.Command {
	output := outputTable
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the database: can sqlbrain live on it, and is the data safe there",
		Long: `Examine the database: can sqlbrain live on it, and is the data safe there.

Nothing is changed. The exit code is 1 if a check fails; warnings do not count.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			report, err := p.examine(ctx)
			if err != nil {
				return err
			}
			if output == outputJSON {
				err = report.WriteJSON(p.stdout)
			} else {
				err = report.WriteTable(p.stdout)
			}
			if err == nil && report.Failed() > 0 {
				return errReported
			}
			return err
		},
	}
	p.needs(cmd, append(databaseFlags, "datastore-max-open-conns", "max-request-bytes")...)
	addOutputFlag(cmd, &output)
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "bound on the whole examination")
	return cmd
}

func (p *program) examine(ctx context.Context) (*doctor.Report, error) {
	u := p.settings.URL()
	var report *doctor.Report
	err := p.withDatabase(ctx, readOnly, func(db *sqldb.Database) error {
		report = doctor.Run(ctx, doctor.Target{
			DB: db.SQL(), Dialect: db.DialectName(), Datastore: u.String(), Local: isLocal(u), Address: only(u),
			MaxRequestBytes: p.settings.Server.MaxRequestBytes, MaxConns: p.databaseConns(),
		})
		return nil
	})
	if errors.Is(err, errNoDatabase) {
		return &doctor.Report{Datastore: u.String(), Findings: []doctor.Finding{{
			Check: "reachable", Status: doctor.Warn, Detail: "the file does not exist yet",
			Advice: "sqlbrain serve creates it; examine it afterwards",
		}}}, nil
	}
	return report, err
}

// databaseConns returns how many connections to the database a server may have.
func (p *program) databaseConns() int {
	return cmp.Or(p.settings.Store.MaxOpenConns, defaultReadConns) + writeConns
}

// only returns the address if there is one, and it is used.
func only(u *sqlstore.URL) string {
	if addresses := u.Addresses(); len(addresses) == 1 && u.Socket == "" {
		return addresses[0]
	}
	return ""
}

// isLocal reports whether no connection leaves this machine.
func isLocal(u *sqlstore.URL) bool {
	return u.Socket != "" || !slices.ContainsFunc(u.Addresses(), func(address string) bool { return !isLoopback(address) })
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
