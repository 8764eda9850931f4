package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

func (p *program) newHealthCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the server that runs here whether it is healthy",
		Long: `Ask the server that runs with these settings whether it is healthy: /readyz on every URL that it
serves clients on, for which it reads as a client would. The exit code is 0 if all of them say so.

An https server must show its --cert-file, whatever name that is for. If the server demands a client
certificate, this command shows the same one, which must then be valid for clients. An http server
is called by the first name of --host-whitelist, if that is set.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			for _, u := range p.settings.Server.ListenClientURLs {
				begin := time.Now()
				if err := askReadiness(ctx, u, &p.settings.Server); err != nil {
					return fmt.Errorf("%s is not healthy: %w", u, err)
				}
				if _, err := fmt.Fprintf(p.stdout, "%s is healthy, took %s\n", u,
					time.Since(begin).Round(time.Microsecond)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	p.needs(cmd, "listen-client-urls", "cert-file", "key-file", "trusted-ca-file", "client-cert-auth", "host-whitelist")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "bound on the whole question")
	return cmd
}

// askReadiness asks the server that listens on the URL raw. The error says what is wrong with
// the server.
func askReadiness(ctx context.Context, raw string, c *server.Config) error {
	target, transport, err := localTransport(raw, &c.TLS)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target+"/readyz", nil)
	if err != nil {
		return err
	}
	// Without TLS the server answers to these names only. Its own address need not be one.
	if names := c.HostWhitelist; len(names) > 0 && !slices.Contains(names, "*") {
		req.Host = names[0]
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	report, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var failed []string
	for line := range strings.Lines(string(report)) {
		if line, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			failed = append(failed, line)
		}
	}
	if len(failed) == 0 {
		return errors.New(resp.Status)
	}
	return errors.New(strings.Join(failed, ", "))
}

// localTransport returns a transport to the server that listens on the URL raw, and the URL to
// use with it, without a trailing slash. net.Dial takes an address like 0.0.0.0 for this machine.
// No proxy is used, because the server runs here.
func localTransport(raw string, c *tlsfiles.Config) (string, *http.Transport, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", nil, err
	}
	t := &http.Transport{DisableKeepAlives: true}
	target := "http://" + u.Host
	switch u.Scheme {
	case "unix", "unixs":
		target = "http://localhost"
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.Host+u.Path)
		}
	default:
		if u.Port() == "0" {
			return "", nil, errors.New("only the server knows which port it chose; name it with --listen-client-urls")
		}
	}
	if u.Scheme == "https" || u.Scheme == "unixs" {
		if t.TLSClientConfig, err = ownCertificate(c); err != nil {
			return "", nil, err
		}
		target = "https" + strings.TrimPrefix(target, "http")
	}
	return target, t, nil
}

// ownCertificate accepts no certificate but the server's own, and shows the same one. It does
// not compare names: they need not contain the listen address, and only the server has the
// certificate's key.
func ownCertificate(c *tlsfiles.Config) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // #nosec G402 -- by name and authority; VerifyConnection is stricter
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, own.Certificate[0]) {
				return fmt.Errorf("it shows another certificate than %s holds", c.CertFile)
			}
			return nil
		},
		// Shown whatever authorities the server names: the server's error for a wrong certificate
		// is clearer than that for none.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil },
	}, nil
}
