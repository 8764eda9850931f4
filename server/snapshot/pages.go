package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
)

// pages are bbolt's, looked at before bbolt does, which takes them as they are: a branch that leads
// back to itself it follows for ever, or until the stack is full, which no recover catches, and
// where an element's place or size is wrong it reads anything. Its own Tx.Check panics in
// a goroutine of its own.
//
// A page is header(16) elements(16 each) data: the keys and values of the elements, one behind
// the other without a gap, as all versions of bbolt write them. So a wrong count, place or size is seen,
// also one by which keys would be missing.
type pages struct {
	ctx  context.Context
	file io.ReaderAt
	size uint64 // of a page, in bytes
	seen []bool // by page: each belongs to one place
}

const (
	pageHeader  = 16 // id(8) flags(2) count(2) overflow(4)
	pageElement = 16 // of a branch: pos(4) ksize(4) page(8); of a leaf: flags(4) pos(4) ksize(4) vsize(4)
	pageBranch  = 0x01
	pageLeaf    = 0x02
	// bucketHeader is before the page of a bucket that is within a value: root(8) sequence(8).
	bucketHeader  = 16
	elementBucket = 0x01
	// maxPageDepth is more than any tree of bbolt's has: a branch has two children at least.
	maxPageDepth = 64

	minPageSize, maxPageSize = 512, 64 << 10
)

// checkPages returns an error unless all pages that can be reached from root, the root
// bucket's page, make trees. size is the size of the database in bytes.
func checkPages(ctx context.Context, file io.ReaderAt, pageSize int, size int64, root uint64) error {
	if pageSize < minPageSize || pageSize > maxPageSize || size%int64(pageSize) != 0 {
		return damaged("it says that its pages have %d bytes", pageSize)
	}
	p := &pages{ctx: ctx, file: file, size: uint64(pageSize), seen: make([]bool, size/int64(pageSize))}
	return p.tree(root, true, nil, nil, 1)
}

// tree looks at a page and those below it. Keys are from low on and below high, nil for no
// bound. Only the root bucket holds buckets.
func (p *pages) tree(id uint64, buckets bool, low, high []byte, depth int) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if depth > maxPageDepth {
		return damaged("page %d is below %d others", id, depth-1)
	}
	page, err := p.read(id)
	if err != nil {
		return err
	}
	elements, branch, err := elementsOf(page, id)
	if err != nil {
		return err
	}
	for i, e := range elements {
		if bytes.Compare(e.key, low) < 0 || i > 0 && bytes.Equal(e.key, low) || high != nil && bytes.Compare(e.key, high) >= 0 {
			return damaged("page %d: the key %.100x is out of order", id, e.key)
		}
		low = e.key
		switch {
		case branch:
			end := high
			if i+1 < len(elements) {
				end = elements[i+1].key
			}
			if err := p.tree(e.page, buckets, e.key, end, depth+1); err != nil {
				return err
			}
		case buckets != (e.flags == elementBucket) || e.flags > elementBucket:
			return damaged("page %d: an element of the kind %x", id, e.flags)
		case buckets:
			if err := p.bucket(e.value, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket looks at a bucket, which is a value of the root bucket.
func (p *pages) bucket(value []byte, depth int) error {
	if len(value) < bucketHeader {
		return damaged("a bucket of %d bytes", len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.tree(root, false, nil, nil, depth+1)
	}
	elements, branch, err := elementsOf(value[bucketHeader:], 0)
	if err != nil {
		return err
	}
	var last []byte
	for _, e := range elements {
		if branch || e.flags != 0 || bytes.Compare(e.key, last) <= 0 {
			return damaged("a small bucket makes no sense")
		}
		last = e.key
	}
	return nil
}

// read returns a page with those that it flows over to.
func (p *pages) read(id uint64) ([]byte, error) {
	total := uint64(len(p.seen))
	if id < 2 || id >= total { // the first two are meta pages
		return nil, damaged("there is no page %d: it has %d", id, total)
	}
	page := make([]byte, p.size)
	if err := p.readAt(page, id); err != nil {
		return nil, err
	}
	over := uint64(binary.NativeEndian.Uint32(page[12:]))
	if over >= total-id {
		return nil, damaged("page %d flows over to %d more, behind the end", id, over)
	}
	for i := id; i <= id+over; i++ {
		if p.seen[i] {
			return nil, damaged("page %d belongs to two places", i)
		}
		p.seen[i] = true
	}
	if over == 0 {
		return page, nil
	}
	page = make([]byte, p.size*(1+over))
	return page, p.readAt(page, id)
}

func (p *pages) readAt(page []byte, id uint64) error {
	_, err := p.file.ReadAt(page, int64(id*p.size))
	if errors.Is(err, io.EOF) {
		return damaged("page %d is cut off", id)
	}
	return err
}

// element is one of a page. What it refers to is the page's.
type element struct {
	key, value []byte
	flags      uint32
	page       uint64 // of a branch
}

// elementsOf takes a page apart; it must say that it is id.
func elementsOf(page []byte, id uint64) (_ []element, branch bool, _ error) {
	if len(page) < pageHeader {
		return nil, false, damaged("page %d has %d bytes", id, len(page))
	}
	order := binary.NativeEndian
	if says := order.Uint64(page); says != id {
		return nil, false, damaged("page %d says that it is page %d", id, says)
	}
	kind, count := order.Uint16(page[8:]), uint64(order.Uint16(page[10:]))
	branch = kind == pageBranch
	if !branch && kind != pageLeaf || branch && count == 0 {
		return nil, false, damaged("page %d, of %d elements, is of the kind %x", id, count, kind)
	}
	at := pageHeader + count*pageElement
	if at > uint64(len(page)) {
		return nil, false, damaged("page %d says that it has %d elements", id, count)
	}
	elements := make([]element, count)
	for i := range elements {
		start := pageHeader + uint64(i)*pageElement
		raw, e := page[start:start+pageElement], &elements[i]
		var pos, ksize, vsize uint64
		if branch {
			pos, ksize, e.page = uint64(order.Uint32(raw)), uint64(order.Uint32(raw[4:])), order.Uint64(raw[8:])
		} else {
			e.flags, pos = order.Uint32(raw), uint64(order.Uint32(raw[4:]))
			ksize, vsize = uint64(order.Uint32(raw[8:])), uint64(order.Uint32(raw[12:]))
		}
		if start+pos != at || ksize == 0 || ksize+vsize > uint64(len(page))-at {
			return nil, false, damaged("page %d: element %d of %d makes no sense", id, i, count)
		}
		e.key, e.value = page[at:at+ksize], page[at+ksize:at+ksize+vsize]
		at += ksize + vsize
	}
	return elements, branch, nil
}
