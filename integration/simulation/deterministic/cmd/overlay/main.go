// overlay writes the build overlay of package deterministic to a directory and prints the path of overlay.json, for
// go test -overlay.
package main

import (
	"fmt"
	"os"

	"github.com/sqlbrain/sqlbrain/integration/simulation/deterministic/overlay"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: overlay DIRECTORY")
		os.Exit(2)
	}
	path, err := overlay.Write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
