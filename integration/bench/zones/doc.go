// Package zones measures three members in three zones, and etcd's. Each zone is a network namespace; a router hands
// packets from one zone to another after half of the round trip. All programs run unmodified, and a zone's clients
// connect from within it.
//
//   - zones_test.go: what is measured
//   - failover_test.go: the time until the other zones put after a leader, a database or a zone is gone
//   - network_test.go: the zones and the router, which is another process, for Linux and root
//   - page_test.go: docs/benchmarks/zones.md
package zones
