// Package backup keeps a continuous backup of a table: bases, which are snapshot files of etcd's format, and segments,
// which have the log rows and version rows of all commits since.
//
// A Place, which is a directory or a bucket, holds:
//
//	manifest.json           the cluster, the bases, the newest segment, and until when the backup is complete
//	base-R-NONCE.db         the store at revision R
//	log-A-B-HASH.seg        the commits of the revisions A to B; with B = A-1 none
//
// Bases and segments never change. Each file has its name once it is complete and flushed, and the manifest names it
// afterwards. A file that the manifest does not lead to is no part of the backup.
//
// All but the manifest may be encrypted: seal.go.
//
// It upholds:
//
//   - Nothing is missing between a base and the newest segment: each segment names the hash of the one before, and
//     begins at the next revision. The manifest names the newest. Moments before a damaged segment can be restored
//     (TestDamageIsFound).
//   - A gap in the log, because compaction was faster, is closed by a new base, and never passed over. Moments in it
//     are refused (TestGapIsClosedByABase, TestGapInASegmentIsNotCovered), as are times after the last look at the log
//     (TestTimesAfterTheEndAreRefused).
//   - A database that lost commits, or another one, ends Ship before anything of it is published
//     (TestAnotherHistoryIsRefused, TestReplacedTableGivesNoBase, TestLostCommitsGiveNoBase).
//   - Revisions are restored as they were committed, those after a base with the times of their commits
//     (TestRestoreAtEveryRevision).
//   - Leases, users and roles are those of the last look at them, which is made with a segment, StateInterval apart,
//     but not while the shipper catches up: the log does not have their changes. A time gets none that were read later
//     (TestUsersAreNotLaterThanATime). While no key is written, a segment without commits follows each change of users
//     and roles (TestUsersOfAnIdleTable). The lease of each key is restored (TestKeysExpireAfterARestore), and users and
//     roles are of one version (TestUsersAreOfOneVersion).
//   - Two processes that ship to one place, as in a rolling update, leave a backup that can be restored: each base
//     has a nonce in its name, and the bytes of a segment decide its name (TestTwoShippers, TestTwoBasesOfOneRevision,
//     TestShipToObjectStorage).
//   - A new base follows daily, or when the segments are larger than the newest one. A segment ends at its revision, so
//     it leaves no gap (TestNewBasesLeaveNoGap). What no kept moment needs is removed from the manifest, and then from
//     the place, at the next start too (TestRetentionKeepsEveryMoment, TestIdleTableIsContinued). Both go by how long the
//     backup was written, and by no wall clock (TestWallClockRemovesNothing).
//   - Leaders that ship in turns leave no gap (TestKeepersTakeTurns), and a place that fails or hangs does not hold up a
//     leader (TestKeeperOutlivesFailures, TestHungPlaceHoldsUpNothing).
//
// Start reading at ship.go, then segment.go, base.go, archive.go and place.go.
package backup
