package transport

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// chunkBytes is the largest chunk of a message. gRPC frees a chunk once it is sent, so that it is also how
	// closely the server follows a client that takes a large answer slowly.
	chunkBytes = 64 << 10
	// sharedEvents and sharedValues are the least sizes of values that are not copied into the answer to a watch and
	// to a range. The value of a version never changes, and all watchers of a key are sent the same slice. Copying a
	// smaller value costs less than another chunk. Those of events are in memory anyway, so not all are counted.
	sharedEvents = 512
	sharedValues = 2048
	// maxFieldHead bounds the tag and the length, or the number, of a field.
	maxFieldHead = 11
	// keyValueNumbers bounds the fields of a mvccpb.KeyValue apart from the key and the value, and their heads.
	keyValueNumbers = 8 * maxFieldHead
)

// message is a message that is being written, in chunks that are counted in an account until they are sent.
type message struct {
	to     *account // nil: they are not counted
	shared int      // least size of values that are not copied
	left   int      // about how many bytes are still to be copied
	chunks mem.BufferSlice

	buf   []byte     // what the current buffer has
	start int        // of the bytes of buf that are not in a chunk yet
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
	size := max(n, min(w.left+keyValueNumbers, chunkBytes))
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
		w.root = mem.NewBuffer(all, (*ownChunks)(w.to))
	}
	return w.buf
}

// cut makes a chunk of what was written since the last one.
func (w *message) cut() {
	switch {
	case len(w.buf) == w.start:
		return
	case w.root == nil:
		w.chunks = append(w.chunks, mem.SliceBuffer(w.buf[w.start:]))
	default:
		w.chunks = append(w.chunks, w.root.Slice(w.start, len(w.buf)))
	}
	w.left -= len(w.buf) - w.start
	w.start = len(w.buf)
}

// flush ends the current buffer. Its chunks keep it.
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
	return w.chunks
}

// copy writes b.
func (w *message) copy(b []byte) {
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
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

// share makes chunks of v.
func (w *message) share(v []byte) {
	w.cut()
	for len(v) > 0 {
		part := v[:min(len(v), chunkBytes)]
		part = part[:len(part):len(part)]
		v = v[len(part):]
		if w.to == nil || mem.IsBelowBufferPoolingThreshold(len(part)) {
			w.chunks = append(w.chunks, mem.SliceBuffer(part))
			continue
		}
		w.to.add(len(part), false)
		w.chunks = append(w.chunks, mem.NewBuffer(&part, (*sharedChunks)(w.to)))
	}
}

// ownChunks is the pool that buffers return to.
type ownChunks account

// Get implements mem.BufferPool.
func (p *ownChunks) Get(size int) *[]byte { return rangeBuffers.Get(size) }

// Put implements mem.BufferPool.
func (p *ownChunks) Put(b *[]byte) {
	(*account)(p).taken(len(*b))
	rangeBuffers.Put(b)
}

// sharedChunks is the pool that chunks of values return to.
type sharedChunks account

// Get implements mem.BufferPool.
func (p *sharedChunks) Get(size int) *[]byte { return rangeBuffers.Get(size) }

// Put implements mem.BufferPool.
func (p *sharedChunks) Put(b *[]byte) { (*account)(p).taken(len(*b)) }
