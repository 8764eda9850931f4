package guard

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
)

// Remote returns the address that a client's call comes from, "" if it is not known. The gateway
// and the console call the server inside this process, and append the address of their client to
// x-forwarded-for: the last one there is theirs, and those before it are what a client claims.
func Remote(ctx context.Context) string {
	if p, ok := grpcpeer.FromContext(ctx); ok && p.Addr != nil && p.Addr.Network() != "bufconn" {
		return p.Addr.String()
	}
	vs := metadata.ValueFromIncomingContext(ctx, "x-forwarded-for")
	if len(vs) == 0 {
		return ""
	}
	token := vs[len(vs)-1]
	return strings.TrimSpace(token[strings.LastIndexByte(token, ',')+1:])
}

// SourceAddress returns HostOf the address that a call comes from.
func SourceAddress(ctx context.Context) string { return HostOf(Remote(ctx)) }

// HostOf returns an address without its port. It returns the network of 64 bits for IPv6, as one client may have all of
// its addresses.
func HostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() && !ip.Is4In6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			address = network.String()
		}
	}
	return address
}
