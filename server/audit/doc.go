// Package audit records changes made by clients, logins that failed and requests that
// were denied, one line of JSON each.
//
//   - No line holds a password, a token or a value of a key. Text chosen by clients is
//     escaped and truncated, so that a line has a bounded length.
//   - A successful change is never suppressed. Everything that a client can cause without
//     permission is limited in rate, for each user or address, and lines say how many events
//     were suppressed and whose.
//   - Recording waits at most one second for a sink that does not answer. Events that the
//     sink did not take go to the process log; metrics count them.
package audit
