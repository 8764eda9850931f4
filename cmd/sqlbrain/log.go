package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// newLogger returns the logger that the settings describe, and what closes its
// files.
func (p *program) newLogger() (logger *slog.Logger, closeFiles func() error, err error) {
	var files []io.Closer
	closeFiles = func() error {
		var errs []error
		for _, f := range files {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
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
	var level slog.Level
	if err := level.UnmarshalText([]byte(p.settings.LogLevel)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("log-level: %w", err), closeFiles())
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	if w := io.MultiWriter(outs...); p.settings.LogFormat == config.FormatJSON {
		handler = slog.NewJSONHandler(w, options)
	} else {
		handler = slog.NewTextHandler(w, options)
	}
	return slog.New(handler), closeFiles, nil
}
