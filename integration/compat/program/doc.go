// Package program runs the built sqlbrain program with one node, as its users do: settings that are wrong, databases
// that are full, kine's command line, and work of one client that could stop others.
package program
