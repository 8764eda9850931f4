package server

import (
	"context"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/peer"
)

// requestIDKey is metadata of a forwarded call: the id that the member gave the client's.
const requestIDKey = peer.MetadataPrefix + "request-id"

// requestID names a client's call in the logs of all members that take part in it.
type requestID uint64

func (id requestID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// requestIDContext is a context with an id. It is a type of its own since every call has one:
// context.WithValue would allocate the id as well.
type requestIDContext struct {
	context.Context
	id requestID
}

type requestIDOfContext struct{} // the key

func (c *requestIDContext) Value(key any) any {
	if key == (requestIDOfContext{}) {
		return c.id
	}
	return c.Context.Value(key)
}

// withRequestID returns ctx for a client's call, with a new id.
func withRequestID(ctx context.Context) context.Context {
	return &requestIDContext{ctx, requestID(rand.Uint64())}
}

// requestIDOf returns the id of a call, "" if it has none. forwarded says that the call comes
// from another member, whose metadata are believed.
func requestIDOf(ctx context.Context, forwarded bool) string {
	if id, ok := ctx.Value(requestIDOfContext{}).(requestID); ok {
		return id.String()
	}
	if vs := metadata.ValueFromIncomingContext(ctx, requestIDKey); forwarded && len(vs) > 0 {
		return vs[0]
	}
	return ""
}
