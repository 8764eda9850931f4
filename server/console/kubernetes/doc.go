// Package kubernetes decodes the objects that kube-apiserver stores in protobuf, without the packages of
// Kubernetes.
//
// It owns kinds.binpb.gz: a compressed FileDescriptorSet of every kind of k8s.io/api, made from the .proto
// files of that module by integration/compat/console/descriptors (go generate). Next to the messages it records what
// only the Go types know: which kinds are stored as which message, and how encoding/json treats each field
// (its name, and when it is left out).
//
// Invariants:
//
//   - A decoded object has the fields that encoding/json writes for the Go type of k8s.io/api: the same names,
//     null and empty values, times, quantities and numbers. TestEveryKindDecodesLikeItsGoType in
//     integration/compat/console compares them kind by kind.
//   - The descriptor set is what its generator writes (TestDescriptorSetIsUpToDate in the same module).
//   - Decoding is bounded in depth and in values before a message is built, and never panics
//     (TestDecodingIsBounded, FuzzDecode).
//
// Start reading at decode.go; then schema.go and json.go.
package kubernetes
