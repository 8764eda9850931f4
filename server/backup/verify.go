package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/snapshot"
)

// Span is a part of a backup in which every moment can be restored.
type Span struct {
	First int64     `json:"first_revision"`
	Last  int64     `json:"last_revision"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"` // when Last was committed
	// Until is a time up to which no commit follows Last. Only the end of a backup without damage has it.
	Until time.Time `json:"until,omitzero"`
}

// Verify reads all that a manifest leads to, and decodes every row of the log. It returns what can be restored, in
// order, and each damage. Errors: ErrNotCovered if there is no base, ErrDamaged of the manifest, ErrIdentity, the
// place's.
func Verify(ctx context.Context, from Source) (spans []Span, damages []error, err error) {
	archive := newBackup(from, Moment{}).from
	m, err := archive.complete(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i, base := range m.Bases {
		end := m.Newest
		if i+1 < len(m.Bases) {
			end = m.Bases[i+1].Before
		}
		b := newBackup(from, Moment{})
		found, usable, err := b.verify(ctx, base, end)
		if err = errors.Join(err, b.Close()); err != nil {
			return nil, nil, err
		}
		if len(found) > 0 {
			now, err := archive.complete(ctx)
			if err != nil {
				return nil, nil, err
			}
			if base.Revision < now.Bases[0].Revision {
				continue // a shipper has removed it since
			}
		}
		damages = append(damages, found...)
		span := Span{First: base.Revision, Last: b.newest, From: base.StateAt,
			To: later(base.StateAt, b.newestTime)}
		if i+1 == len(m.Bases) && len(found) == 0 {
			span.Until = m.Until
		}
		last := len(spans) - 1
		switch {
		case last >= 0 && spans[last].Last == base.Revision: // it leads over to this base
			if usable {
				spans[last].Last, spans[last].To, spans[last].Until = span.Last, span.To, span.Until
			}
		case usable:
			spans = append(spans, span)
		}
	}
	return spans, damages, nil
}

// verify verifies a base, and the segments after it up to end. usable says that moments from the base to b.newest can
// be restored.
func (b *Backup) verify(ctx context.Context, base base, end segment) (damages []error, usable bool, err error) {
	var log snapshot.Log = b
	if err := b.replay(ctx, base, end); errors.Is(err, ErrDamaged) {
		damages, log = append(damages, err), nil
	} else if err != nil {
		return nil, false, err
	}
	if b.damage != nil {
		damages = append(damages, b.damage)
	}
	file, err := b.openBase(ctx)
	if err == nil {
		if err = errors.Join(file.Check(ctx, log), file.Close()); err == nil {
			return damages, true, nil
		}
		err = fmt.Errorf("%s: %w", b.base.name(), err)
	}
	if ctx.Err() != nil || errors.Is(err, ErrIdentity) {
		return nil, false, err
	}
	return append(damages, err), false, nil // as archive.chain takes a segment that it cannot read
}
