// Package program runs the built sqlbrain program with one node, as its users do: settings that are wrong, databases
// that are unfit or full, kine's and golang-migrate's commands, and work of one client that could stop others.
package program
