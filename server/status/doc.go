// Package status is what the server reports about itself: health endpoints, metrics, the log of requests with their
// ids, profiles, and whether the node serves. Traces are in status/tracing.
//
// Invariants:
//
//   - Names and meanings of endpoints, metrics and log fields are etcd's where etcd has them.
//   - Every check is bounded in time, and so are the labels that clients choose (TestClientVersionsAreBounded).
//   - The metrics of readiness are current, whether or not a probe asks (TestReadinessIsCheckedWithoutProbes).
//   - No value, password or token gets into the log of requests (TestRequestLog).
//
// The endpoints are tested with the server around them, in package server.
//
// Start reading at endpoints.go; then health.go and logging.go.
package status
