package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSearchIgnoresCaseButNotBytes(t *testing.T) {
	for in, want := range map[[2]string]bool{
		{"/A/b", "a/B"}:      true,
		{"/É", "é"}:          true,
		{"/É", "\x89"}:       true,
		{"/É\xfe", "É"}:      true,
		{"/A\xff", "a\xff"}:  true,
		{"/A\xfe", "a\xff"}:  false,
		{"/\ufffd", "\xff"}:  false,
		{"/\xff", "\ufffd"}:  false,
		{"/a/b/c", "a/c"}:    false,
		{"/\xff\x00Z", "z"}:  true,
		{"/\x00\xffz", "ZZ"}: false,
	} {
		require.Equal(t, want, containing([]byte(in[1]))([]byte(in[0])), "%q", in)
	}
}
