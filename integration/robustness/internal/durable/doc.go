// Package durable tells etcd's validators what sqlbrain made durable: it reads
// the requests from the table, independently of the server.
package durable
