package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Run runs the whole suite as subtests of t, each on a new store.
func Run(t *testing.T, open Opener) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, sqlstore.Store)
	}{
		{"KeysAreOrderedBytewise", testOrder},
		{"ValuesAreBinary", testBinaryValues},
		{"IterCoversTheRange", testIterRanges},
		{"IterEndsAnyTime", testIterEnds},
		{"SlicesBelongToTheCaller", testOwnership},
		{"GetAndMultiGet", testGet},
		{"MultiGetOfThousands", testMultiGetMany},
		{"MultiGetIsOneSnapshot", testMultiGetSnapshot},
		{"ListIsOneSnapshot", testListSnapshot},
		{"ListPages", testListPages},
		{"ListMissingVersion", testListMissingVersion},
		{"LookupFindsEachKey", testLookup},
		{"LookupIsBounded", testLookupIsBounded},
		{"LookupIsOneSnapshot", testLookupSnapshot},
		{"CountJudgesRevisionAndTombstone", testCount},
		{"SeekNthFindsTheRowAfter", testSeekNth},
		{"LatestAtOrBeforeOfManyRanges", testLatestAtOrBefore},
		{"BytesOfRowsAreCounted", testBytes},
		{"ChangesOnPlainRows", testChangesPlain},
		{"ChangesOnVersionedRows", testChangesVersioned},
		{"CompareAndSwapOnMissingVersionedRow", testMissingVersionedRow},
		{"MissingFenceRowIsNoticed", testMissingFenceRow},
		{"RowVersionsOfZeroAreValues", testZeroRowVersions},
		{"ConflictLeavesNothing", testAtomicConflict},
		{"PipelineShapedBatches", testPipelineBatches},
		{"BatchMisuseIsRefused", testBatchMisuse},
		{"LargeValues", testLargeValues},
		{"BigBatches", testBigBatches},
		{"ManyKeysAreDeleted", testDeletions},
		{"TooLargeIsRefused", testTooLarge},
		{"OneOfManySwapsWins", testConcurrentCAS},
		{"SwapsAddUp", testConcurrentCounter},
		{"TwoSwapsAreOne", testTwoSwaps},
		{"TwoSwapsAddUp", testConcurrentPair},
		{"CommittedIsVisible", testReadYourCommit},
		{"ContextEndsCalls", testContext},
		{"CloseEndsEverything", testClose},
		{"PartitionsCoverTheRange", testPartitions},
		{"SizeAndDefragment", testSize},
		{"TimestampIsATime", testTimestamp},
		{"RandomHistories", testHistory},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := open(t)
			t.Cleanup(func() { require.NoError(t, store.Close(), "Close") })
			test.run(t, store)
		})
	}
}
