// Package sqldbtest holds what the tests of the engines share: opening a migrated store,
// the statements whose plans are checked, and steps of the fence row. It has no
// invariants; the packages that use it test it.
//
// An engine's tests wrap the engine's OpenDB, others wrap engines.OpenDB:
//
//	s := sqldbtest.Opener(engines.OpenDB).Store(t, url, sqlstore.Options{})
package sqldbtest
