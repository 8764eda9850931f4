// Package tlsfiles makes TLS configurations from PEM files, for listeners and
// for clients, and reads the files again when they change.
//
// What it upholds: a handshake uses the files' newest content that fits
// together; files that are being replaced never take down what works.
package tlsfiles
