// Package bounds attacks a server with what HTTP/2 and etcd's API let a client do without ever being wrong: not to
// read, not to finish, to open and to reset. It judges the memory of the server, and that other clients are served;
// it logs their times.
package bounds
