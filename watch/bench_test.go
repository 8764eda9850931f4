package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

// BenchmarkPublish publishes one event that one of the watchers wants; the cost
// must not grow with their number.
func BenchmarkPublish(b *testing.B) {
	for _, kind := range []string{"keys", "prefixes"} {
		for _, n := range []int{1, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				benchmarkPublish(b, n, 1, func(i int) CreateRequest {
					r := CreateRequest{Key: fmt.Appendf(nil, "/registry/%06d/", i)}
					if kind == "prefixes" {
						r.End = fmt.Appendf(nil, "/registry/%06d0", i)
					} else {
						r.Key = append(r.Key, 'x')
					}
					return r
				})
			})
		}
	}
}

// BenchmarkFanOut publishes one event that all watchers want.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchmarkPublish(b, n, n, func(int) CreateRequest {
				return CreateRequest{Key: []byte("/registry/"), End: []byte("/registry0")}
			})
		})
	}
}

// benchmarkPublish publishes to n watchers on 16 streams; want of them get each
// event, and read it before the next.
func benchmarkPublish(b *testing.B, n, want int, request func(i int) CreateRequest) {
	hub := NewHub(newHistory(), 1, -1, completed(Config{QueueEvents: 1 << 20}))
	defer hub.Close()
	var got sync.WaitGroup
	var readers sync.WaitGroup
	for c := range 16 {
		s := hub.NewStream()
		created := 0
		for i := c; i < n; i += 16 {
			s.Create(Permitted, request(i))
			created++
		}
		for range created {
			if _, err := s.Next(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		readers.Go(func() {
			for {
				r, err := s.Next(context.Background())
				if errors.Is(err, ErrClosed) {
					return
				}
				got.Add(-len(r.Events))
			}
		})
	}
	value := make([]byte, 512)
	b.ReportAllocs()
	rev := int64(1)
	for b.Loop() {
		rev++
		e := &Event{Record: &coder.Record{
			Key: fmt.Appendf(nil, "/registry/%06d/x", int(rev)*7919%n), Value: value, ModRevision: rev, Version: 2,
		}}
		got.Add(want)
		hub.Publish([]*Event{e}, rev)
		got.Wait()
	}
	b.StopTimer()
	hub.Close()
	readers.Wait()
}

// BenchmarkProgressOnRequest asks for progress of a stream of 1,000 watchers.
func BenchmarkProgressOnRequest(b *testing.B) {
	hub := NewHub(newHistory(), 1, -1, completed(Config{}))
	defer hub.Close()
	s := hub.NewStream()
	for range 1000 {
		s.Create(Permitted, CreateRequest{Key: []byte("a")})
	}
	for range 1000 {
		if _, err := s.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s.RequestProgress()
		if _, err := s.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
