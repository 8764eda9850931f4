// Package durable provides etcd's validators with the writes that sqlbrain made
// durable. It reads them from the table, independently of the server.
package durable
