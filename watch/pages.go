package watch

// Pages says how large the next page of a read may be, if the sizes of its items are not known before.
type Pages struct{ next, most, maxBytes, bytes, largest int }

// NewPages returns the Pages of a read that ends at maxBytes. Its first page has first items, and no page more than
// most.
func NewPages(first, most, maxBytes int) Pages {
	return Pages{next: first, most: most, maxBytes: maxBytes, largest: 1}
}

// Add notes the bytes of an item that was read.
func (p *Pages) Add(bytes int) {
	p.bytes += bytes
	p.largest = max(p.largest, bytes)
}

// Full reports whether maxBytes were read.
func (p *Pages) Full() bool { return p.bytes >= p.maxBytes }

// Next returns how many items the next page may have: twice as many as the one before, but of the size of the largest
// item so far, no more than are left of maxBytes, and one.
func (p *Pages) Next() int {
	n := p.next
	if !p.Full() {
		n = min(n, (p.maxBytes-p.bytes)/p.largest+1)
	}
	p.next = min(2*n, p.most)
	return n
}
