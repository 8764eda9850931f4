// Package history reads what changed in the table: log rows name the versions that a commit
// wrote, and when, and version rows hold their values. Watches that start in the past, and followers
// that catch up, read it.
//
// It upholds:
//
//   - The events of a revision are returned completely, in order, or not at all
//     (TestChangesAreWholeRevisions).
//   - The history of the compact revision itself can be read. A call that compaction
//     overtakes ends with watch.CompactedError, and never with a part of the events
//     (TestCompactedHistoryIsRefused).
//   - Watchers that lag together share reads of the log, in bounded memory, and get what the table
//     would have answered (TestWatchersShareTheLog, TestCachedLogAnswersAsTheTable).
//   - A time stands for the last revision committed at or before it. Where that was compacted,
//     RevisionAt says so, and names no later one (TestRevisionAtATime).
package history
