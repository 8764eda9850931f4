//go:build !linux

package console

func still(program string) (path string, env []string) { return program, nil }

func becomeStill() {}
