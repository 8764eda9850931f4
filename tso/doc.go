// Package tso is the timestamp oracle: it allocates revisions and records
// which of them are visible.
//
// It upholds the counting half of invariant "revisions are commit order":
// revisions are allocated to one batch at a time, start right after the
// visible revision, and those of a batch that was not committed are handed out again.
// So there are neither gaps nor reuse.
package tso
