package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
)

const unixPrefix = "unix:"

// parseURLs returns the addresses of a member's URLs. A host is looked up at every
// connection, and is the name that its certificate must have.
func parseURLs(urls []string) (addresses []resolver.Address, secure bool, err error) {
	if len(urls) == 0 {
		return nil, false, errors.New("peer: a member without URLs cannot be reached")
	}
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, false, fmt.Errorf("peer: %w", err)
		}
		a := resolver.Address{Addr: u.Host, ServerName: u.Hostname()}
		switch u.Scheme {
		case "http", "https":
			if u.Port() == "" {
				return nil, false, fmt.Errorf("peer: URL %q needs a host and a port", raw)
			}
		case "unix", "unixs":
			a = resolver.Address{Addr: unixPrefix + u.Host + u.Path, ServerName: "localhost"}
		default:
			return nil, false, fmt.Errorf("peer: URL %q: scheme must be http, https, unix or unixs", raw)
		}
		s := strings.HasSuffix(u.Scheme, "s")
		if i > 0 && s != secure {
			return nil, false, fmt.Errorf("peer: URLs %s: some use TLS and some do not", strings.Join(urls, ","))
		}
		secure = s
		addresses = append(addresses, a)
	}
	return addresses, secure, nil
}

// dialer connects, and remembers how that went: what gRPC says of a failure is
// text only.
type dialer struct {
	mu   sync.Mutex
	last map[string]bool // by address: whether the last attempt was refused
}

func newDialer(addresses []resolver.Address) *dialer {
	d := &dialer{last: make(map[string]bool)}
	for _, a := range addresses {
		d.last[a.Addr] = false
	}
	return d
}

func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	network, target := "tcp", address
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, target = "unix", path
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, target)
	refused := errors.Is(err, syscall.ECONNREFUSED) || network == "unix" && errors.Is(err, os.ErrNotExist)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last[address] = refused
	return conn, err
}

// refused reports whether the last attempt at every address was refused.
func (d *dialer) refused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.last {
		if !r {
			return false
		}
	}
	return true
}

// newestTLS are gRPC's TLS credentials with a configuration made anew for each
// handshake.
type newestTLS struct {
	credentials.TransportCredentials
	config func() *tls.Config
}

func newCredentials(secure bool, config func() *tls.Config) credentials.TransportCredentials {
	if !secure {
		return insecure.NewCredentials()
	}
	return newestTLS{credentials.NewTLS(config()), config}
}

func (c newestTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.config()).ClientHandshake(ctx, authority, conn)
}

func (c newestTLS) Clone() credentials.TransportCredentials { return newCredentials(true, c.config) }
