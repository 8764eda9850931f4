// Package read is the read path: ranges, streams of ranges, lists of children and the versions
// of a key, at one revision of the table.
//
// Start with Reader.Stable: it takes the visible revision, lets its caller read there, and looks at the
// compaction mark. A Reading (rows.go, gather.go, range.go, count.go) answers from keyspace.View as far as
// that knows, and offers it what it reads from the table.
//
// Invariants, and the tests that hold them (reader_test.go unless a package is named):
//
//   - A revision's content never changes: TestCountsAgree, and in server/replica
//     TestConcurrentReadsMatchTheModel and TestRandomHistoriesMatchTheModel.
//   - A read below the compact revision never answers with what is left. A reader of rows looks
//     at the mark afterwards: TestStableReadsAgainWhenCompactionOvertakes,
//     TestOlderRevisionsAreNotReadAgain, TestStreamsEndWhenCompactionOvertakes.
//   - A key is read in one statement with those of other callers, which began after all of them came:
//     TestGatheredReadsBeginAfterTheirCallersCame.
//   - A read that needs no row asks the database nothing: TestReadsFromMemoryAskNothing.
//   - A count costs what its ends cost: TestRepeatedCountReadsOnlyItsEnds in server/replica.
//   - Stored counts are taken up only with all log rows since: TestStoredCountsMatchTable and
//     TestUselessCountsAreNotTaken in server/replica.
package read
