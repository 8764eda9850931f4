package auth

import (
	"context"
	"errors"
	"testing"
)

type noView struct{ View }

func TestZeroPermitRefuses(t *testing.T) {
	if err := (Permit{}).Check(t.Context(), noView{}); !errors.Is(err, ErrNoPermit) {
		t.Fatal(err)
	}
	if err := NewPermit(nil).Check(t.Context(), noView{}); !errors.Is(err, ErrNoPermit) {
		t.Fatal(err)
	}
}

func TestPermitAnswersWhatItsJudgeSays(t *testing.T) {
	denied := errors.New("denied")
	asked := 0
	p := NewPermit(func(_ context.Context, at View) error {
		asked++
		if at != (noView{}) {
			t.Errorf("it looks at %v", at)
		}
		return denied
	})
	for range 2 {
		if err := p.Check(t.Context(), noView{}); !errors.Is(err, denied) {
			t.Fatal(err)
		}
	}
	if asked != 2 {
		t.Fatalf("asked %d times", asked)
	}
	for name, p := range map[string]Permit{"system": System, "pre-authorized": PreAuthorized} {
		if err := p.Check(t.Context(), noView{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
