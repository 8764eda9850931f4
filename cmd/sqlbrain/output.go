package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// output is the form in which a command answers.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

func addOutputFlag(cmd *cobra.Command, o *output) {
	cmd.Flags().VarP(o, "output", "o", "form of the answer")
}

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "table|json" }

func (o *output) Set(s string) error {
	switch output(s) {
	case outputTable, outputJSON:
		*o = output(s)
		return nil
	}
	return fmt.Errorf("must be one of %s, %s", outputTable, outputJSON)
}
