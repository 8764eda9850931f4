package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
)

// pages checks the pages of a bbolt database before bbolt reads them. bbolt trusts them: it
// follows a branch that leads back to itself without end, or until the stack overflows,
// which cannot be recovered from, and it reads any memory if the position or size of an
// element is wrong. Its Tx.Check panics in a goroutine where the caller cannot recover.
//
// A page is header(16) elements(16 each) data. The data is the keys and values of the
// elements, in order and without gaps, as all versions of bbolt write them. So a wrong
// count, position or size is detected, even one that would only hide keys.
type pages struct {
	ctx  context.Context
	file io.ReaderAt
	size uint64 // of a page, in bytes
	seen []bool // by page: each page is referenced once
}

const (
	pageHeader  = 16 // id(8) flags(2) count(2) overflow(4)
	pageElement = 16 // of a branch: pos(4) ksize(4) page(8); of a leaf: flags(4) pos(4) ksize(4) vsize(4)
	pageBranch  = 0x01
	pageLeaf    = 0x02
	// bucketHeader precedes the page of a bucket that is stored in a value: root(8) sequence(8).
	bucketHeader  = 16
	elementBucket = 0x01
	// maxPageDepth exceeds the depth of every tree in bbolt: a branch has at least two children.
	maxPageDepth = 64

	minPageSize, maxPageSize = 512, 64 << 10
)

// checkPages returns an error unless all pages that can be reached from root, the root
// bucket's page, form trees. size is the size of the database in bytes.
func checkPages(ctx context.Context, file io.ReaderAt, pageSize int, size int64, root uint64) error {
	if pageSize < minPageSize || pageSize > maxPageSize || size%int64(pageSize) != 0 {
		return damaged("its page size is %d bytes", pageSize)
	}
	p := &pages{ctx: ctx, file: file, size: uint64(pageSize), seen: make([]bool, size/int64(pageSize))}
	return p.tree(root, true, nil, nil, 1)
}

// tree checks a page and those below it. Keys must be in [low, high); a nil bound is open.
// Only the root bucket holds buckets.
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
		if bytes.Compare(e.key, low) < 0 || i > 0 && bytes.Equal(e.key, low) || high != nil &&
			bytes.Compare(e.key, high) >= 0 {
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

// bucket checks a bucket, which is a value of the root bucket.
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
			return damaged("an inline bucket is invalid")
		}
		last = e.key
	}
	return nil
}

// read returns a page with its overflow pages.
func (p *pages) read(id uint64) ([]byte, error) {
	total := uint64(len(p.seen))
	if id < 2 || id >= total { // the first two are meta pages
		return nil, damaged("page %d does not exist: it has %d pages", id, total)
	}
	page := make([]byte, p.size)
	if err := p.readAt(page, id); err != nil {
		return nil, err
	}
	over := uint64(binary.NativeEndian.Uint32(page[12:]))
	if over >= total-id {
		return nil, damaged("page %d has %d overflow pages, past the end of the file", id, over)
	}
	for i := id; i <= id+over; i++ {
		if p.seen[i] {
			return nil, damaged("page %d is referenced twice", i)
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
		return damaged("page %d is truncated", id)
	}
	return err
}

// element is one element of a page. Its slices point into the page.
type element struct {
	key, value []byte
	flags      uint32
	page       uint64 // of a branch
}

// elementsOf decodes a page, whose header must name id.
func elementsOf(page []byte, id uint64) (_ []element, branch bool, _ error) {
	if len(page) < pageHeader {
		return nil, false, damaged("page %d has %d bytes", id, len(page))
	}
	order := binary.NativeEndian
	if says := order.Uint64(page); says != id {
		return nil, false, damaged("page %d has the number %d in its header", id, says)
	}
	kind, count := order.Uint16(page[8:]), uint64(order.Uint16(page[10:]))
	branch = kind == pageBranch
	if !branch && kind != pageLeaf || branch && count == 0 {
		return nil, false, damaged("page %d, of %d elements, is of the kind %x", id, count, kind)
	}
	at := pageHeader + count*pageElement
	if at > uint64(len(page)) {
		return nil, false, damaged("page %d cannot have %d elements", id, count)
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
			return nil, false, damaged("page %d: element %d of %d is invalid", id, i, count)
		}
		e.key, e.value = page[at:at+ksize], page[at+ksize:at+ksize+vsize]
		at += ksize + vsize
	}
	return elements, branch, nil
}
