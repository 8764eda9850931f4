package transport

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// pieceBytes is the largest piece of a message. gRPC frees a piece once it is sent, so that it is also how
	// closely the server follows a client that takes a large answer slowly.
	pieceBytes = 64 << 10
	// sharedEvents and sharedValues are the least sizes of values that are not copied into the answer to a watch and
	// to a range. The value of a version never changes, and all watchers of a key are sent the same slice. Copying a
	// smaller value costs less than another piece. Those of events are in memory anyway, so not all are counted.
	sharedEvents = 512
	sharedValues = 2048
	// maxFieldHead bounds the tag and the length, or the number, of a field.
	maxFieldHead = 11
	// keyValueNumbers bounds the fields of a mvccpb.KeyValue apart from the key and the value, and their heads.
	keyValueNumbers = 8 * maxFieldHead
)

// message is a message that is being written, in pieces that are counted in an account until they are sent.
type message struct {
	to     *account // nil: they are not counted
	shared int      // least size of values that are not copied
	left   int      // about how many bytes are still to be copied
	pieces mem.BufferSlice

	buf   []byte     // what the current buffer has
	start int        // of the bytes of buf that are not in a piece yet
	root  mem.Buffer // all of the current buffer; nil: it is not from the pool
}

// newMessage returns a message of about size bytes without those of values that are not copied, which have shared
// bytes.
func newMessage(size, shared int, to *account) *message {
	return &message{to: to, shared: shared, left: size}
}

// room returns buf with room for n more bytes.
func (w *message) room(n int) []byte {
	if len(w.buf)+n <= cap(w.buf) {
		return w.buf
	}
	w.flush()
	size := max(n, min(w.left+keyValueNumbers, pieceBytes))
	if mem.IsBelowBufferPoolingThreshold(size) {
		w.buf = make([]byte, 0, size)
		return w.buf
	}
	all := rangeBuffers.Get(size)
	*all = (*all)[:cap(*all)]
	w.buf = (*all)[:0]
	if w.to == nil {
		w.root = mem.NewBuffer(all, rangeBuffers)
	} else {
		w.to.add(len(*all), false)
		w.root = mem.NewBuffer(all, (*ownPieces)(w.to))
	}
	return w.buf
}

// cut makes a piece of what was written since the last one.
func (w *message) cut() {
	switch {
	case len(w.buf) == w.start:
		return
	case w.root == nil:
		w.pieces = append(w.pieces, mem.SliceBuffer(w.buf[w.start:]))
	default:
		w.pieces = append(w.pieces, w.root.Slice(w.start, len(w.buf)))
	}
	w.left -= len(w.buf) - w.start
	w.start = len(w.buf)
}

// flush ends the current buffer. Its pieces keep it.
func (w *message) flush() {
	w.cut()
	if w.root != nil {
		w.root.Free()
	}
	w.buf, w.start, w.root = nil, 0, nil
}

// done returns the message.
func (w *message) done() mem.BufferSlice {
	w.flush()
	return w.pieces
}

// copy writes b.
func (w *message) copy(b []byte) {
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		w.buf = append(w.room(n), b[:n]...)
		b = b[n:]
	}
}

// keyValue writes kv as a field; nil is left out.
func (w *message) keyValue(field byte, kv *mvccpb.KeyValue) {
	if kv == nil {
		return
	}
	share := len(kv.Value) >= w.shared
	need := keyValueNumbers + len(kv.Key)
	if !share {
		need += len(kv.Value)
	}
	b := protowire.AppendVarint(append(w.room(need), field<<3|byte(protowire.BytesType)), uint64(sizeKeyValue(kv)))
	b = appendKeyBeforeValue(b, kv)
	if share {
		w.buf = protowire.AppendVarint(append(b, 5<<3|byte(protowire.BytesType)), uint64(len(kv.Value)))
		w.share(kv.Value)
		b = w.buf
	} else {
		b = appendBytes(b, 5, kv.Value)
	}
	w.buf = appendInt64(b, 6, kv.Lease)
}

// share makes pieces of v.
func (w *message) share(v []byte) {
	w.cut()
	for len(v) > 0 {
		part := v[:min(len(v), pieceBytes)]
		part = part[:len(part):len(part)]
		v = v[len(part):]
		if w.to == nil || mem.IsBelowBufferPoolingThreshold(len(part)) {
			w.pieces = append(w.pieces, mem.SliceBuffer(part))
			continue
		}
		w.to.add(len(part), false)
		w.pieces = append(w.pieces, mem.NewBuffer(&part, (*sharedPieces)(w.to)))
	}
}

// ownPieces is the pool that buffers return to.
type ownPieces account

// Get implements mem.BufferPool.
func (p *ownPieces) Get(size int) *[]byte { return rangeBuffers.Get(size) }

// Put implements mem.BufferPool.
func (p *ownPieces) Put(b *[]byte) {
	(*account)(p).taken(len(*b))
	rangeBuffers.Put(b)
}

// sharedPieces is the pool that pieces of values return to.
type sharedPieces account

// Get implements mem.BufferPool.
func (p *sharedPieces) Get(size int) *[]byte { return rangeBuffers.Get(size) }

// Put implements mem.BufferPool.
func (p *sharedPieces) Put(b *[]byte) { (*account)(p).taken(len(*b)) }
