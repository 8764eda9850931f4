// Package planes runs many control planes, each a server of one member with one database, on one
// database server: most are idle, some have objects that come and go, and then one makes as much noise as it
// can. The busy ones must have no failed write and must deliver every event; what all of them use is measured.
//
// The test has a few planes. With -planes N there are so many idle ones and a tenth of that busy ones, and -page FILE
// writes what was measured:
//
//	make bench WHAT=planes
package planes
