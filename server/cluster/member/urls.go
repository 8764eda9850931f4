package member

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// maxURLBytes bounds the peer URLs of a member together, in bytes. All members read each other's rows all the time.
const maxURLBytes = 4 << 10

// normalURLs returns urls in the order and the form in which etcd keeps and
// compares them, or ErrBadURLs.
func normalURLs(urls []string) ([]string, error) {
	if bytes := len(strings.Join(urls, "")); bytes > maxURLBytes {
		return nil, fmt.Errorf("%w: they have %d bytes, more than %d", ErrBadURLs, bytes, maxURLBytes)
	}
	all, err := types.NewURLs(urls)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadURLs, err)
	}
	return slices.Compact(all.StringSlice()), nil
}

// checkReachable refuses URLs at which no other process can reach this one.
func checkReachable(urls []string) error {
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBadURLs, err)
		}
		ip := net.ParseIP(u.Hostname())
		if !isSocket(raw) && (u.Hostname() == "" || u.Port() == "0" || ip != nil && ip.IsUnspecified()) {
			return fmt.Errorf("%w: %q is not an address at which other members can reach this one; check "+
				"--initial-advertise-peer-urls", ErrBadURLs, raw)
		}
	}
	return nil
}

// address returns where a URL leads. The scheme makes no difference between members.
func address(raw string) string {
	_, rest, _ := strings.Cut(raw, "://")
	if isSocket(raw) {
		return "unix:" + rest
	}
	return rest
}

func sameAddress(a, b string) bool { return address(a) == address(b) }

func isSocket(raw string) bool { return strings.HasPrefix(raw, "unix") }

// isLocal reports whether a URL leads to the host of the process that connects.
func isLocal(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return isSocket(raw) || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
