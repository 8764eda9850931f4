// Package fence owns the fence row: the one row that every commit compares and swaps, and
// so the rule that only one leader's commits take effect. It also owns what follows from
// that rule: the read lease, a leader's check that it still leads, and the data loss marker.
// A leader uses Holder to commit and Authority to verify that it leads. Every process keeps a Seen.
//
// What the package upholds, and where it is tested:
//
//   - A value of the fence row never returns: its sequence increases with every change.
//     Neither a deposed leader nor a late packet can commit (holder_test.go).
//   - An unknown outcome is resolved before anything else happens: the fence row holds the
//     commit's value, or it is raised so that the commit can never take effect (holder_test.go).
//   - A leader answers from memory only within the read lease, which counts from the start
//     of a success on the fence row. A successor serves TakeoverWait after its own change
//     of the row, unless the leader before recorded that it stopped (readlease.go, authority_test.go).
//   - Acknowledged data that is gone is not forgotten: CheckToken and CheckDataLoss compare the fence row
//     with what was seen there before (token_test.go, seen_test.go, dataloss_test.go).
//   - A loss that is proven stops every server, however much others write before it is recorded:
//     LossRecorder requires that the fence row is older still, or that a revision in the table is
//     another one than was shown (dataloss_test.go, ../replica/divergence_test.go).
package fence
