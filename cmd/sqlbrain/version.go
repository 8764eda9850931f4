package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/server"
)

// version is set by the linker for releases: -ldflags "-X main.version=v1.2.3".
var version string

// productVersion returns the version of this binary: the linker's, else the
// module's, else the commit it was built from.
func productVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func (p *program) newVersionCommand() *cobra.Command {
	output := outputTable
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this binary and of the API it serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Sqlbrain string `json:"sqlbrain"`
				Etcd     string `json:"etcd"` // of the API, as clients see it
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{productVersion(), server.EtcdVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if output == outputJSON {
				return json.NewEncoder(p.stdout).Encode(v)
			}
			_, err := fmt.Fprintf(p.stdout, "sqlbrain %s\netcd API %s\nGo       %s\nplatform %s\n", v.Sqlbrain, v.Etcd, v.Go,
				v.Platform)
			return err
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}
