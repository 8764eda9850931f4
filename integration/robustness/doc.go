// Package robustness puts sqlbrain under the traffic of etcd's robustness tests
// and has their validators judge the answers: that all of them together are
// linearizable, that watches kept etcd's guarantees (ordered, unique, atomic,
// reliable, resumable, bookmarkable, previous values, creations), and that reads
// of old revisions gave what those revisions held.
//
// The validators want to know what the server made durable. It is read from the
// table, after the server has ended: log rows say which keys each revision
// changed, version rows what to. A trigger keeps the rows that compaction
// deletes. So the clients' answers are judged by the data, not by the server.
//
//	go test .                                   about half a minute an engine
//	SQLBRAIN_LONG=1 go test . -timeout 60m      every disturbance, five times
//
// Start reading at robustness_test.go, then internal/durable.
// The same for several nodes is in package cluster.
package robustness
