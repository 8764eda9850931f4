// Package keyspace keeps the part of the key space that is read in memory: View.
//
// It knows disjoint segments of the key space in three levels of detail: how many keys
// there are (a counted span), the keys, or the keys with their values. Counted spans and the more
// detailed segments overlap, so they are in a tree each: a count of a large range adds up
// counted spans of some 2,048 keys, of which only a few are in memory with their values. Keys that
// are read singly are records in a hash map.
//
// Invariants, and the tests that hold them (view_test.go unless a file is named):
//
//   - At every visible revision that a segment reaches back to, it holds exactly
//     what the table held: TestViewMatchesTable. Every change passes through Apply, in order
//     and before the visible revision reaches its revision.
//   - What was read from the table before a change does not replace the change. A Fill is
//     announced before the table is read, and the changes applied since are put on top of
//     what was read: TestViewMatchesTable. There is one list of changes for all fills; if it
//     becomes too long, all fills are void: TestChangesOfFillsAreBounded.
//   - A count at a revision is that of the newest state less what was created and deleted
//     since: TestViewMatchesTable. A part of a counted span that has become too large is not read:
//     TestGrownSpanCountsTheWholeOnly.
//   - Memory stays within the budget: TestViewMatchesTable, TestHistoryIsBounded,
//     TestViewShrinksToAnyBudget. Of the budget three quarters are for
//     segments, and what these leave for single records. Counted spans are outside it: there are
//     as many as one for each 512 keys at most.
//   - A range that is read once evicts nothing that is in use: TestRangesReadOnceEvictNothing.
//     It is admitted if there is free space. Otherwise it must have been requested before, and
//     may evict only segments that were not read since that request, or not for a minute.
//
// A View has one lock, which is held for one segment, or some changes, at a time. Records
// are shared with the callers and must not be changed. DESIGN.md explains the choices.
package keyspace
