// Package process runs the programs that are compared: it starts them, knows what
// they wrote, and stops each by its id.
//
// What it upholds: no process outlives this one, however it ends (on Linux);
// nothing is waited for without a bound; a port is given to one server at a time.
//
// Start reading at process.go.
package process
