package enginetest

import "errors"

func (p *instance) pause() error  { return errors.ErrUnsupported }
func (p *instance) resume() error { return nil }
