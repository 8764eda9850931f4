// Package compact owns the compaction mark, which is the oldest readable revision. It
// removes the rows that no readable revision needs, and decides when a leader compacts by
// itself. The mark moves in the write pipeline. The leader then wakes the Remover.
//
// It upholds:
//
//   - The mark never falls, and never exceeds the newest revision
//     (TestMarkMovesUpToTheNewestRevision).
//   - A version that a revision at or above the mark needs stays. So does the index row of
//     a key that was created again (TestRemoverKeepsWhatRevisionsNeed).
//   - What the compact revision itself wrote stays, because a watch may start there. What it
//     replaced goes (TestRemoverRemovesWhatTheCompactRevisionReplaced).
//   - A version that a lost commit replaced stays (TestRemoverStopsWhenTheDatabaseLostItsClaim).
//   - Work that a restart interrupts is continued: log rows are removed last
//     (TestRemoverContinuesAfterFailures).
//   - A caller waits for a bounded time while nothing can be removed (TestWaitIsBounded).
package compact
