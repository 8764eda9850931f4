package sqldb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestErrorKindsAreInLowerCase: alerts name them.
func TestErrorKindsAreInLowerCase(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		sqlstore.ErrUncertain, sqlstore.ErrRowMissing, sqlstore.ErrTooLarge, sqlstore.ErrClosed, sqlstore.ErrUnavailable,
		sqlstore.ErrFull, context.Canceled, errors.ErrUnsupported, &sqlstore.Conflict{},
	} {
		if kind := errorKind(fmt.Errorf("wrapped: %w", err)); kind == "" || kind != strings.ToLower(kind) {
			t.Errorf("%v is of the kind %q", err, kind)
		}
	}
}
