// Package tso is the timestamp oracle: it hands out revisions and says how far
// they are visible.
//
// It upholds the counting half of invariant "revisions are commit order":
// revisions are allocated to one batch at a time, start right behind the
// frontier, and those of a batch that was not committed are handed out again.
// So there are neither gaps nor reuse.
package tso
