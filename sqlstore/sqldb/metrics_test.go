package sqldb

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestErrorKindsAreListed: alerts name them, and each exists from the start.
func TestErrorKindsAreListed(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		sqlstore.ErrUncertain, sqlstore.ErrRowMissing, sqlstore.ErrTooLarge, sqlstore.ErrClosed, sqlstore.ErrUnavailable,
		sqlstore.ErrFull, context.Canceled, errors.ErrUnsupported, &sqlstore.Conflict{},
	} {
		require.Contains(t, errorKinds, errorKind(fmt.Errorf("wrapped: %w", err)))
	}
}
