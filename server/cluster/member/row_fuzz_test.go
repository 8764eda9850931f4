package member

import (
	"bytes"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

// FuzzMemberRow: no row makes the decoder panic, and a row that it takes is the
// same row when it was written anew.
func FuzzMemberRow(f *testing.F) {
	f.Add("default", Member{ID: 7, PeerURLs: []string{"http://a:1"}, Version: "1", Incarnation: 3, Heartbeat: 9,
		RoundTrip: 500}.encode())
	f.Add(unstarted+"7", Member{ID: 7}.encode())
	f.Add(changes, []byte("12"))
	f.Add("", []byte(`{"id":0}`))
	f.Add("\xff", []byte(`{"id":1,"round_trip_us":-1,"incarnation":1}`))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		got, err := decodeEntry(coder.EncodeMemberKey(name), value)
		if err != nil {
			return
		}
		if got.ID == 0 || !bytes.Equal(got.raw, value) {
			t.Fatalf("%q %s was taken as %+v", name, value, got)
		}
		again, err := decodeEntry(coder.EncodeMemberKey(name), got.encode())
		if err != nil || again.Name != got.Name || !bytes.Equal(again.encode(), got.encode()) {
			t.Fatalf("%q %s is read as %+v, and what that is written as as %+v, %v", name, value, got, again, err)
		}
	})
}
