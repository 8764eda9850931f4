package kine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// PeerListener opens the port at which the other members reach this one: at the address pod, of the variable POD_IP, or
// if that is empty at the address from which this host reaches the database u. The system chooses the port. No flag has
// to say where the members are, because each writes its address into its row.
func PeerListener(ctx context.Context, u *sqlstore.URL, pod string) (net.Listener, error) {
	ip := net.ParseIP(pod)
	if pod != "" && ip == nil {
		return nil, fmt.Errorf("POD_IP: %q is not an IP address", pod)
	}
	if ip == nil {
		var err error
		if ip, err = routeTo(ctx, u); err != nil {
			return nil, fmt.Errorf("cannot find the address at which other members reach this one, set --peer-bind-address: %w",
				err)
		}
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip.String(), "0"))
}

// routeTo returns the address from which this host sends to the database. It sends nothing.
func routeTo(ctx context.Context, u *sqlstore.URL) (net.IP, error) {
	if u.Socket != "" {
		return net.IPv4(127, 0, 0, 1), nil
	}
	var errs []error
	for _, address := range u.Addresses() {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		local, ok := conn.LocalAddr().(*net.UDPAddr)
		if err := conn.Close(); err != nil || !ok {
			return nil, errors.Join(errors.New("no local address"), err)
		}
		return local.IP, nil
	}
	return nil, errors.Join(errs...)
}

// PeerURL returns the URL of a listener that PeerListener opened.
func PeerURL(l net.Listener) string { return "https://" + l.Addr().String() }

// HostOnly reports whether only processes of this host reach a URL of PeerURL.
func HostOnly(l net.Listener) bool {
	host, _, _ := net.SplitHostPort(l.Addr().String())
	ip := net.ParseIP(strings.Split(host, "%")[0])
	return ip.IsLoopback()
}
