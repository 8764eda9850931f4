package sqldb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestErrorKindsAreListed: alerts name them, and each exists from the start.
func TestErrorKindsAreListed(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		sqlstore.ErrUncertain, sqlstore.ErrRowMissing, sqlstore.ErrTooLarge, sqlstore.ErrClosed, sqlstore.ErrUnavailable,
		sqlstore.ErrFull, context.Canceled, errors.ErrUnsupported, &sqlstore.Conflict{},
	} {
		if kind := errorKind(fmt.Errorf("wrapped: %w", err)); !slices.Contains(errorKinds, kind) {
			t.Errorf("%v is of the kind %q", err, kind)
		}
	}
}
