package link

import (
	"context"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc/metadata"
)

// RequestIDKey is metadata of a forwarded call: the id that the member gave to the client's call.
const RequestIDKey = MetadataPrefix + "request-id"

// callID names a client's call in the logs of all members that take part in it.
type callID uint64

func (id callID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// idContext is a context with an id. Every call has one, and
// context.WithValue would allocate the id as well.
type idContext struct {
	context.Context
	id callID
}

type requestIDKey struct{} // the key of the context

func (c *idContext) Value(key any) any {
	if key == (requestIDKey{}) {
		return c.id
	}
	return c.Context.Value(key)
}

// WithRequestID returns ctx for a client's call, with a new id, which names the call in the logs
// of all members that take part in it.
func WithRequestID(ctx context.Context) context.Context {
	return &idContext{ctx, callID(rand.Uint64())}
}

// RequestID returns the id of a call, "" if it has none. forwarded says that the call comes
// from another member, whose metadata are believed.
func RequestID(ctx context.Context, forwarded bool) string {
	if id, ok := ctx.Value(requestIDKey{}).(callID); ok {
		return id.String()
	}
	if vs := metadata.ValueFromIncomingContext(ctx, RequestIDKey); forwarded && len(vs) > 0 {
		return vs[0]
	}
	return ""
}
