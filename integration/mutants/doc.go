// Package mutants is a list of mistakes that an implementation of this design could have, and
// the record of which tests find them: docs/mutants.md. Each mutant is one replacement in the
// product's source (package mutation). Some imitate faults that etcd had, others what a review
// found, and others were made up for each invariant of ARCHITECTURE.md.
//
// The command integration/cmd/mutants, which make mutants runs, plants the mutants one by one,
// asks a Judge, and records the verdicts in verdicts.json. A mutant that no test finds is a test
// that is missing. In CI only TestMutantsApply and TestPage run.
package mutants
