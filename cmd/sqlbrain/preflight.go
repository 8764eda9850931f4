package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// preflight checks, before the database is touched, that the addresses, files and origins can be used.
// A node that was started by mistake must fail on its port before the others learn of it, and one that
// cannot serve must not take the place of a member that does. clustered means that it will listen on the
// peer URLs, too.
func preflight(s *config.Settings, clustered bool) (err error) {
	c := &s.Config
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
	var open []*transport.Listener // until the end: two settings cannot have the same address
	defer func() {
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
	}()
	for _, setting := range []struct {
		name string
		urls []string
	}{
		{"listen-client-urls", c.Server.ListenClientURLs}, {"listen-metrics-urls", c.Server.ListenMetricsURLs},
		{"listen-peer-urls", c.Server.PeerURLs},
	} {
		if setting.name == "listen-peer-urls" && (!clustered || c.Server.Listen != nil) { // not used, or open already
			continue
		}
		listeners, err := transport.Listen(setting.urls,
			transport.Options{Conns: new(transport.Connections), Credentials: true})
		open = append(open, listeners...)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Origin(setting.name), err)
		}
	}
	return nil
}
