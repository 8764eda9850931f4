package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"

	"github.com/sqlbrain/sqlbrain/server/loglimit"
)

// maxLoggedText bounds each text of a log line, in bytes. Clients choose some of them:
// names of users, keys, what an error quotes.
const maxLoggedText = 2048

// logged is for slog.HandlerOptions.ReplaceAttr. It bounds texts, and writes durations with their
// unit, as etcd does; in JSON slog writes them as nanoseconds.
func logged(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(bounded(a.Value.String()))
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			if s := v.Error(); len(s) > maxLoggedText {
				a.Value = slog.StringValue(bounded(s))
			}
		case []string:
			out := make([]string, len(v))
			for i, s := range v {
				out[i] = bounded(s)
			}
			a.Value = slog.AnyValue(out)
		}
	}
	return a
}

// bounded returns s, or its beginning and how many bytes were left out.
func bounded(s string) string {
	if len(s) <= maxLoggedText {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes more)", strings.ToValidUTF8(s[:maxLoggedText], ""), len(s)-maxLoggedText)
}

// newLogger returns the logger that the settings describe, and what closes its
// files.
func (p *program) newLogger() (logger *slog.Logger, closeFiles func() error, err error) {
	var files []io.Closer
	closeFiles = func() (err error) {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	var outs []io.Writer
	for _, name := range p.settings.LogOutputs {
		switch name {
		case "stderr", "default":
			outs = append(outs, p.stderr)
		case "stdout":
			outs = append(outs, p.stdout)
		default:
			f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, nil, errors.Join(fmt.Errorf("log-outputs: %w", err), closeFiles())
			}
			files, outs = append(files, f), append(outs, f)
		}
	}
	options := &slog.HandlerOptions{Level: p.settings.LogLevel, ReplaceAttr: logged}
	var handler slog.Handler
	if w := outputs(outs); p.settings.LogJSON {
		handler = slog.NewJSONHandler(w, options)
	} else {
		handler = slog.NewTextHandler(w, options)
	}
	logger = slog.New(handler)
	grpcErrors.log.Store(logger)
	return logger, closeFiles, nil
}

// grpcErrors bounds the errors that gRPC and the JSON gateway log: every client can cause them.
var grpcErrors grpcLog

func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, &grpcErrors)) }

// grpcLog takes the lines of gRPC's log.
type grpcLog struct {
	log   atomic.Pointer[slog.Logger] // the newest; nil: none yet
	limit loglimit.Log
}

func (g *grpcLog) Write(line []byte) (int, error) {
	if log := g.log.Load(); log != nil {
		_, text, _ := strings.Cut(strings.TrimSpace(string(line)), ": ") // after the time and the level
		g.limit.Warn(log, "gRPC failed", "error", text)
	}
	return len(line), nil
}

// outputs writes to each of several writers. One that fails does not keep the others from a line, as in
// io.MultiWriter: the disk of a log file may be full.
type outputs []io.Writer

func (all outputs) Write(line []byte) (int, error) {
	var errs []error
	for _, w := range all {
		_, err := w.Write(line)
		errs = append(errs, err)
	}
	return len(line), errors.Join(errs...)
}
