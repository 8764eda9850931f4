// Package repair fills and mends a table that no server serves: Restore fills an empty
// table with versions that another server made, Discard empties one, and Recover is the way
// out after the database lost acknowledged data.
//
// It upholds:
//
//   - No server serves an incomplete table (TestInterruptedRestoreStartsOver in server/replica). A
//     job (restore, import of kine's keys, return to kine) names its kind and a random token in the job row. That row
//     is committed with the fence row, so a server that looked for it before finds one of them when
//     it takes the fence row. The last commit says there that the job has ended.
//   - Two jobs never mix their data. Each commit of a job is conditional on its token, so that a job
//     that was overtaken fails at its next commit, however late that arrives. A job is overtaken
//     only by one that knows what it left: a restore by a restore, and the two of kine's by each
//     other (TestEveryPairOfJobs in cmd/sqlbrain/internal/kine).
//   - A Recover continues at a revision, a term and a sequence far above all that were
//     ever acknowledged, in one atomic step that fences every server that still runs
//     (TestExamineFindsWhatContradicts, TestRecoverIsRefusedWhileAServerCommits).
//   - A restore over a table with data continues above every revision that the table had, also if
//     it is interrupted and begins again (TestReplacedRevisionSurvivesInterruption).
//   - A commit with an unknown outcome is repeated until its outcome is known, or the
//     caller's context ends (TestRecoverResolvesAnUnknownOutcome).
package repair
