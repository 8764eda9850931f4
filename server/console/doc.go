// Package console is the console that the server shows in a browser at /ui: plain
// HTML, CSS and JavaScript modules that are embedded, and the JSON below /ui/api/
// that they ask.
//
// Invariants:
//
//   - One place decides who may do what: every read and write of keys, users and
//     roles is a call of the server's own RPCs, or of a read that is guarded in the
//     same way, with the token of the user who is logged in.
//   - Without authentication nothing can be changed, unless Config.Write says so.
//   - The browser runs nothing but the embedded files (Content-Security-Policy), no
//     other site's page can make it call (http.CrossOriginProtection, a SameSite
//     cookie, and no CORS), and no script can read the token (HttpOnly).
//   - No secret is shown: no password, no token; what a Secret of Kubernetes holds is
//     replaced by its length. Hosts and users of the database are for root.
//   - A view of any stored value is bounded and never panics (FuzzView).
//   - An object is edited only if all of it can be written again: kinds and fields that are
//     not known are refused (TestObjectsThatWouldLoseSomethingAreNotEdited).
//   - Every answer is bounded, in time, keys or bytes. One request at a time goes through
//     all keys, one examines the database, few render values, and so many watch at most.
//     What a client no longer waits for ends.
//
// Objects of Kubernetes in protobuf are decoded and encoded by console/kubernetes, without Kubernetes' packages.
//
// Start reading at console.go; then browse.go, view.go and decode.go, and static/main.js.
package console
