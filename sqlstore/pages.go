package sqlstore

import (
	"iter"
	"slices"
)

// Pages returns the rows of r, for implementations of KvStorage.Iter. It calls
// read for one page after the other, each time with the range that is left. read
// returns at most r.Limit rows, unless that is 0, in the order of r. more reports
// whether rows may follow; a page without rows is the last one.
func Pages(r Range, read func(r Range) (page []Row, more bool, err error)) iter.Seq2[Row, error] {
	r.Start, r.End = slices.Clone(r.Start), slices.Clone(r.End)
	return func(yield func(Row, error) bool) {
		for rest, more := r, true; more; {
			var page []Row
			var err error
			if page, more, err = read(rest); err != nil {
				yield(Row{}, err)
				return
			}
			n := len(page)
			if n == 0 {
				return
			}
			if rest.Limit > 0 {
				rest.Limit -= n
				more = more && rest.Limit > 0
			}
			// A copy: the caller may change the row's key.
			if last := slices.Clone(page[n-1].Key); r.Reverse {
				rest.End = last
			} else {
				rest.Start = append(last, 0)
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// First returns the first of rows; found is false if there is none.
func First(rows iter.Seq2[Row, error]) (row Row, found bool, err error) {
	for row, err := range rows {
		return row, err == nil, err
	}
	return Row{}, false, nil
}
