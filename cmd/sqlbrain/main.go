package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// repeated is how long further signals count as repetitions of the first. A terminal signals a program and the one that
// started it, which may pass the signal on.
const repeated = time.Second

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// The goroutine lives as long as the process. It keeps the signals to the end:
	// giving them back to the system after the first one would leave a moment in
	// which a second one is lost.
	go func() {
		code := 1
		if s, ok := stopOn(signals, cancel).(syscall.Signal); ok {
			code = 128 + int(s) // as shells report an end by a signal
		}
		os.Exit(code)
	}()
	os.Exit(run(ctx, commandLine(os.Args), os.Environ(), os.Stdout, os.Stderr))
}

// stopOn calls stop at the first signal, and returns the first later one that does not
// repeat it.
func stopOn(signals <-chan os.Signal, stop func()) os.Signal {
	<-signals
	first := time.Now()
	stop()
	for {
		if s := <-signals; time.Since(first) >= repeated {
			return s
		}
	}
}
