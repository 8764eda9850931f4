// Package tlsfiles makes TLS configurations from PEM files, for listeners and
// for clients, and reads the files again when they change.
//
// What it upholds: a handshake uses the files' newest content that fits
// together; files that are being replaced never take down what works.
//
// etcd's transport.TLSInfo upholds less: it reads authorities once, at start, and a handshake
// fails while certificate and key do not fit together.
package tlsfiles
