// Package interfere measures what background work costs the clients of other keys: the longest and the slowest
// hundredth of their puts and gets while it is done, beside those of a time without it.
//
// Start reading at works.go, which has the kinds of work, and then at measure.go.
package interfere
