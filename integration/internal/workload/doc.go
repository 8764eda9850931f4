// Package workload drives an etcd endpoint with the requests kube-apiserver sends,
// measures it, and checks every answer.
//
// It is a plain client on clientv3, independent of the server, and runs against
// etcd as well as against sqlbrain. Run executes one workload and returns a
// Report; a later run may continue with its objects.
//
// Guarantees:
//
//   - Every answer is checked against a model of what was written: key, create
//     and mod revision, version, lease, a hash of the value, counts, more flags,
//     the revision of the header, and of watches each event once, in order, with
//     the version it replaced. An answer that came while the same object was
//     being written is checked once the model is complete.
//   - A write whose outcome is unknown (timeout, connection lost) is settled by
//     repeating the same optimistic transaction, so the model never guesses.
//   - No error is swallowed: each is counted by its gRPC code and shown, and a
//     run that verified wrongly, or in which nothing succeeded, returns an error.
//   - Nothing outside Config.Prefix is written, and a prefix that holds keys
//     already is refused.
//
// Start reading at run.go. The model is in model.go, the requests in write.go,
// read.go and watch.go, the workloads in workloads.go, latency.go and lease.go.
package workload
