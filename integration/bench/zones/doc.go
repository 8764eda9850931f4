// Package zones measures three members in three zones, and etcd's: each member, the database and its replica are
// reached through proxies that delay what is sent, except by what is in their own zone. Start reading at zones_test.go.
package zones
