package coder

// DataLoss is the content of the data loss marker: what a member had seen in the fence row when it
// found less there. No member may serve until the fence row has reached that again.
type DataLoss struct {
	// Sequence, Term and Revision are the highest that were seen, see FenceToken.
	Sequence, Term, Revision int64
	Member                   uint64 // who found out
	At                       int64  // when, by its clock; seconds since 1970
}

const lostLen = 1 + 5*8

// DataLossKey is the internal key of the data loss marker. Commits do not write it, and it is written
// without comparing the fence row, whose value is what was lost.
func DataLossKey() []byte { return []byte(magicMeta + "lost") }

// EncodeDataLoss returns the data loss marker's value:
//
//	format(1) sequence(8) term(8) revision(8) member(8) at(8)
func EncodeDataLoss(l DataLoss) []byte {
	b := make([]byte, 0, lostLen)
	return appendInt64s(append(b, formatV1), l.Sequence, l.Term, l.Revision, int64(l.Member), l.At)
}

// DecodeDataLoss is the inverse of EncodeDataLoss.
func DecodeDataLoss(b []byte) (DataLoss, error) {
	if len(b) != lostLen || b[0] != formatV1 {
		return DataLoss{}, malformed(b, "data loss marker %x", b)
	}
	return DataLoss{Sequence: int64At(b, 1), Term: int64At(b, 9), Revision: int64At(b, 17), Member: uint64(int64At(b, 25)),
		At: int64At(b, 33)}, nil
}
