package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// A proxy must keep each session on one connection to the primary. A proxy that spreads
// sessions or statements over servers makes reads miss earlier writes.

// identity is which server answers.
const identity = "SELECT CONCAT(@@hostname, ':', @@port, ' (server_id ', @@server_id, ')')"

// otherConnections is how many more are asked who answers them.
const otherConnections = 2

// checkRoute finds out whether all connections and statements reach one server.
func (s *server) checkRoute(ctx context.Context) {
	if s.tidb() {
		return // its servers are equals
	}
	const check = "route"
	var server string
	if !s.ask(ctx, check, identity, &server) {
		return
	}
	another := func(other string) bool { return other != server }
	session, err := s.identities(ctx)
	if err != nil {
		s.broken(check, err)
		return
	}
	if i := slices.IndexFunc(session, another); i >= 0 {
		s.add(check, Fail, fmt.Sprintf("statements of one session reach %s and %s", server, session[i]),
			"a proxy splits reads from writes, or shares connections: turn that off for this user, or go around it")
		return
	}
	others, err := s.elsewhere(ctx)
	if err != nil {
		s.broken(check, err)
		return
	}
	if i := slices.IndexFunc(others, another); i >= 0 {
		s.add(check, Fail, fmt.Sprintf("connections reach %s and %s", server, others[i]),
			"a proxy or a name spreads them over several servers: let it lead to the primary only")
		return
	}
	proxy := proxyOf(s.greeting, s.version, s.comment)
	if proxy != "" {
		s.add(check, Warn, proxy+" answers for "+server,
			"see that it sends everything to the primary, keeps sessions apart, repeats no statement by itself, and closes "+
				"connections when the primary changes")
		return
	}
	s.ok(check, "all connections reach %s", server)
}

// identities asks in the ways by which proxies distinguish reads from writes.
func (s *server) identities(ctx context.Context) (all []string, err error) {
	ask := func(text string) {
		var server string
		if err == nil {
			err = s.conn.QueryRowContext(ctx, text).Scan(&server)
		}
		all = append(all, server)
	}
	ask(identity)
	ask(identity + " FOR UPDATE")
	if _, berr := s.conn.ExecContext(ctx, "START TRANSACTION"); berr != nil {
		return nil, berr
	}
	ask(identity)
	ask(identity + " FOR UPDATE")
	_, rerr := s.conn.ExecContext(ctx, "ROLLBACK")
	return all, errors.Join(err, rerr)
}

// elsewhere returns the servers that other connections reach.
func (s *server) elsewhere(ctx context.Context) (servers []string, err error) {
	for range otherConnections {
		conn, err := s.DB.Conn(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close() //nolint:errcheck // only returns it to the pool; in use until then, so that the next one is another
		var server string
		if err := conn.QueryRowContext(ctx, identity).Scan(&server); err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// proxyOf names the proxy that answers in the server's place; "" if none shows.
func proxyOf(greeting, version, comment string) string {
	for mark, name := range map[string]string{"proxysql": "ProxySQL", "maxscale": "MaxScale", "-router": "MySQL Router",
		"tiproxy": "TiProxy"} {
		if strings.Contains(strings.ToLower(greeting+" "+comment), mark) {
			return name
		}
	}
	plain := func(s string) string { return strings.TrimPrefix(s, "5.5.5-") } // MariaDB's, for old clients
	if greeting != "" && plain(greeting) != plain(version) {
		return fmt.Sprintf("something that calls itself %q", greeting)
	}
	return ""
}

// greet returns the version in the first packet of the listener at address: the
// server's, unless a proxy replaced it.
func greet(ctx context.Context, address string) (string, error) {
	const timeout = 5 * time.Second
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	// Length and number of the packet, and the protocol's version.
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", err
	}
	if head[4] != 10 {
		return "", errors.New("no greeting of MySQL's protocol")
	}
	version, err := r.ReadString(0)
	return strings.TrimSuffix(version, "\x00"), err
}
