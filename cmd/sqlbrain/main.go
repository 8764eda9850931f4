package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// The goroutine lives as long as the process. It keeps the signals to the end:
	// giving them back to the system after the first one would leave a moment in
	// which a second one is lost.
	go func() {
		<-signals
		cancel()
		second := <-signals
		code := 1
		if s, ok := second.(syscall.Signal); ok {
			code = 128 + int(s) // as shells report an end by a signal
		}
		os.Exit(code)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
