package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// ErrDamaged: a file is not what was written.
var ErrDamaged = errors.New("the backup is damaged")

const (
	// magic begins a segment. Its last byte is the version of the format.
	magic = "sqlbrain-segment\x02"
	// maxHeader and maxPart bound what is taken of a segment before it is looked at: a row has a key of up to
	// coder.MaxInternalKey, and a value of up to 16 MiB.
	maxHeader, maxPart = 64 << 10, 17 << 20
	// window is how far back compression looks. It bounds memory.
	window = 1 << 20
)

// header is the first line of a segment, in JSON.
type header struct {
	First    int64   `json:"first"`    // revision
	Last     int64   `json:"last"`     // revision
	Previous segment `json:"previous"` // the segment before; zero for the first one after a base
	// StateAt, if it is not zero, says that the rows of all leases, users and roles follow those of the log: the state. It
	// was read at that time or before.
	StateAt time.Time `json:"state_at,omitzero"`
}

// encodeSegment returns a segment.
//
//	magic, zstd of: header, "\n", for each row: uvarint len(key), key, uvarint len(value), value
//	SHA-256 of all before (32)
func encodeSegment(h header, rows []sqlstore.Row) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(magic)
	z, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window))
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriter(z)
	_, err = out.Write(append(line, '\n'))
	var size []byte
	for _, row := range rows {
		for _, part := range [][]byte{row.Key, row.Value} {
			size = binary.AppendUvarint(size[:0], uint64(len(part)))
			_, werr := out.Write(size)
			_, perr := out.Write(part)
			err = errors.Join(err, werr, perr)
		}
	}
	if err = errors.Join(err, out.Flush(), z.Close()); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	b.Write(sum[:])
	return b.Bytes(), nil
}

func hashOf(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}

// decodeSegment checks a segment and calls f with its rows, if f is not nil. Errors: ErrDamaged, f's.
func decodeSegment(file []byte, f func(sqlstore.Row) error) (h header, err error) {
	damaged := func(what string) error { return fmt.Errorf("%w: %s", ErrDamaged, what) }
	if len(file) < len(magic)+sha256.Size || !bytes.HasPrefix(file, []byte(magic)) {
		return h, damaged("no segment of this version")
	}
	content, sum := file[:len(file)-sha256.Size], file[len(file)-sha256.Size:]
	if want := sha256.Sum256(content); !bytes.Equal(sum, want[:]) {
		return h, damaged("its checksum does not match")
	}
	z, err := zstd.NewReader(bytes.NewReader(content[len(magic):]), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return h, damaged(err.Error())
	}
	defer z.Close()
	in := bufio.NewReaderSize(z, maxHeader)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return h, damaged("no header")
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, damaged("header: " + err.Error())
	}
	part := func() ([]byte, error) {
		n, err := binary.ReadUvarint(in)
		if err != nil {
			return nil, err
		}
		if n > maxPart {
			return nil, damaged("a row is too large")
		}
		b := make([]byte, n)
		_, err = io.ReadFull(in, b)
		return b, err
	}
	for f != nil {
		key, err := part()
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		var value []byte
		if err == nil {
			value, err = part()
		}
		if err != nil {
			return h, damaged("a row: " + err.Error())
		}
		if err := f(sqlstore.Row{Key: key, Value: value}); err != nil {
			return h, err
		}
	}
	return h, nil
}
