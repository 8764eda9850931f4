package election

import (
	"bytes"
	"testing"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqlbrain/sqlbrain/coder"
)

// FuzzLockRow: no row makes the decoder panic, and a row that it takes can be
// replaced by one with the same record and the next number.
func FuzzLockRow(f *testing.F) {
	first, err := encodeRow(nil, record{LeaderElectionRecord: resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15}, Incarnation: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first.raw)
	f.Add(coder.EncodeLock(1, nil))
	f.Add(coder.EncodeLock(9, []byte(`{"renewTime":"2026-01-01T00:00:00Z","handedOver":true}`)))
	f.Add(coder.EncodeLock(9, []byte(`{"renewTime":"9999-12-31T23:59:59-23:59"}`)))
	f.Add(coder.EncodeLock(2, []byte(`[]`)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decodeRow(raw)
		if err != nil {
			return
		}
		if got.sequence < 1 || !bytes.Equal(got.raw, raw) {
			t.Fatalf("%q was taken as number %d", raw, got.sequence)
		}
		next, err := encodeRow(got, got.record)
		if err != nil {
			return // a time that JSON cannot say again
		}
		if latest := max(got.RenewTime.UTC().Year(), got.AcquireTime.UTC().Year()); latest > 9999 {
			return // client-go writes such times, but cannot read them; ours are of the clock
		}
		if got.sequence+1 < 1 {
			return // after 2^63 changes
		}
		back, err := decodeRow(next.raw)
		if err != nil || back.sequence != got.sequence+1 || back.HolderIdentity != got.HolderIdentity || back.Incarnation != got.Incarnation ||
			back.TransferredBy != got.TransferredBy || back.HandedOver != got.HandedOver || back.LeaseDurationSeconds != got.LeaseDurationSeconds {
			t.Fatalf("%q is read as %+v, its successor as %+v, %v", raw, got, back, err)
		}
	})
}
