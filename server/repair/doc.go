// Package repair fills and mends a table that no server serves: Restore fills an empty
// table with versions that another server made, and Recover is the way out after the
// database lost acknowledged data.
//
// It upholds:
//
//   - A table that a Restore has not finished is marked, and no server serves it
//     (TestInterruptedRestoreStartsOver in server/backend). The mark is committed with the
//     chain row, so a server that looked for the mark before finds one of them when it takes
//     the chain row. The last commit removes the mark.
//   - A Recover continues at a revision, a term and a sequence far above all that were
//     ever acknowledged, in one atomic step that fences every server that still runs
//     (TestExamineFindsWhatContradicts, TestRecoverIsRefusedWhileAServerCommits).
//   - A commit with an unknown outcome is repeated until its outcome is known, or the
//     caller's context ends (TestRecoverSettlesAnUnknownOutcome).
package repair
