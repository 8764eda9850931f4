package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// preflight checks, before the database is touched, that the addresses, files and origins can be used.
// A node that was started by mistake must fail on its port before the others learn of it, and one that
// cannot serve must not take the place of a member that does. clustered means that it will listen on the
// peer URLs, too.
func preflight(c *config.Config, clustered bool) error {
	for _, t := range []struct {
		flags string
		files tlsfiles.Config
	}{
		{"cert-file, key-file, trusted-ca-file or client-crl-file", c.Server.TLS},
		{"peer-cert-file, peer-key-file, peer-trusted-ca-file or peer-crl-file", c.Node.PeerTLS},
	} {
		if t.files.Empty() {
			continue
		}
		if _, err := tlsfiles.Open(t.files, slog.New(slog.DiscardHandler)); err != nil {
			return fmt.Errorf("%s: %w", t.flags, err)
		}
	}
	if err := guard.CheckToken(c.Server.AuthToken); err != nil {
		return err
	}
	if _, err := transport.AllowOrigins(c.Server.CORS, http.NotFoundHandler()); err != nil {
		return err
	}
	urls := slices.Concat(c.Server.ListenClientURLs, c.Server.ListenMetricsURLs)
	if clustered && c.Server.Listen == nil { // else they are open already
		urls = append(urls, c.Server.PeerURLs...)
	}
	listeners, err := transport.Listen(urls, transport.Options{Conns: new(transport.Connections), Credentials: true})
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}
