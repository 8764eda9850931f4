// Package plans is the program that package runner builds with the overlay of package deterministic. It is a package of
// its own because the tests of package simulation link more, and the overlay compiles everything that is linked anew.
package plans
