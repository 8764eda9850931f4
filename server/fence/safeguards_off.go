//go:build sqlbrain_sabotage

package fence

import (
	"os"
	"slices"
	"strings"
)

// sabotaged are the safeguards that SQLBRAIN_SABOTAGE switches off, separated by
// commas, so that tests of consistency can show that they would find a bug there. They run
// whole programs, which no wrapper of a test reaches. Without the tag, off is false and
// the compiler removes it:
//
//   - token: commits replace the fence row whatever it holds
//   - fence: leaders answer reads without asking whether they still lead
//   - resolve: commits of unknown outcome are taken for done
var sabotaged = strings.Split(os.Getenv("SQLBRAIN_SABOTAGE"), ",")

func off(safeguard string) bool { return slices.Contains(sabotaged, safeguard) }
