package sqlstore

import "context"

type urgent struct{}

// Urgent returns the context of a read that must not wait for other reads: a store that has separate connections for
// commits uses one of these.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgent{}, true) }

// IsUrgent reports whether ctx is one of Urgent.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgent{}) != nil }
