package auth

import (
	"reflect"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

func TestWithMakesNewRows(t *testing.T) {
	first := NewRows()
	second := first.With(&Change{Enabled: true, Revision: 5, Users: map[string][]byte{"a": []byte("1"), "b": {}},
		Revoked: map[string][]byte{"h": {1}}})
	third := second.With(&Change{Revision: 6, Users: map[string][]byte{"a": nil},
		Roles: map[string][]byte{"r": []byte("2")}})
	if !reflect.DeepEqual(first, NewRows()) {
		t.Errorf("the rows before changed: %+v", first)
	}
	want := &Rows{
		AuthSettings: coder.AuthSettings{Version: 1, Enabled: true, Revision: 5},
		Users:        map[string][]byte{"a": []byte("1"), "b": {}}, Roles: map[string][]byte{},
		Revoked: map[string][]byte{"h": {1}},
	}
	if !reflect.DeepEqual(second, want) {
		t.Errorf("after the first change: %+v", second)
	}
	want = &Rows{
		AuthSettings: coder.AuthSettings{Version: 2, Revision: 6, Epoch: 1}, // switched off: tokens are void
		Users:        map[string][]byte{"b": {}}, Roles: map[string][]byte{"r": []byte("2")},
		Revoked: map[string][]byte{"h": {1}},
	}
	if !reflect.DeepEqual(third, want) {
		t.Errorf("after the second change: %+v", third)
	}
}
