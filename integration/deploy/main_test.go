package deploy

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

const folder = "../../deploy/" // of the files under test

// built is a directory for what is built.
var built string

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "sqlbrain-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(os.RemoveAll(built), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
