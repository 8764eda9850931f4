//go:build unix

package enginetest

import "syscall"

func (p *instance) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.awaitStopped()
}

func (p *instance) resume() error { return p.signal(syscall.SIGCONT) }
