package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

const (
	// helpWidth is the number of columns that help fits into.
	helpWidth = 100
	// manyFlags is from how many flags on help shows them in groups.
	manyFlags = 20
)

// addFlagGroups lets templates call flagGroups. cobra keeps the functions of all commands in one map.
var addFlagGroups = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagGroups", flagGroups) })

// arrangeHelp makes help fit the screen, with flags in groups, and lets shells complete the
// values of flags, for root and all its commands.
func arrangeHelp(root *cobra.Command) {
	addFlagGroups()
	usage := root.UsageTemplate()
	for plain, ours := range map[string]string{
		"Flags:\n{{.LocalFlags.FlagUsages |": "{{flagGroups .LocalFlags |",
		"{{.InheritedFlags.FlagUsages |":     fmt.Sprintf("{{.InheritedFlags.FlagUsagesWrapped %d |", helpWidth),
	} {
		if !strings.Contains(usage, plain) {
			panic("cobra's template has changed")
		}
		usage = strings.Replace(usage, plain, ours, 1)
	}
	root.SetUsageTemplate(usage)
	completeValues(root)
}

// flagGroups is the text about fs in help.
func flagGroups(fs *pflag.FlagSet) string {
	var titles []string
	flags := map[string]*pflag.FlagSet{}
	count := 0
	fs.VisitAll(func(*pflag.Flag) { count++ })
	fs.VisitAll(func(f *pflag.Flag) {
		title := "Flags"
		if group := f.Annotations[config.GroupOf]; count >= manyFlags && len(group) > 0 {
			title = group[0]
		}
		if flags[title] == nil {
			titles = append(titles, title)
			flags[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			flags[title].SortFlags = false
		}
		flags[title].AddFlag(f)
	})
	var b strings.Builder
	for _, title := range titles {
		b.WriteString(title + ":\n" + flags[title].FlagUsagesWrapped(helpWidth) + "\n")
	}
	return b.String()
}

// completeValues lets shells complete the words of a flag that has a few, names of files and
// directories where a flag takes one, and nothing for the others, for cmd and its commands.
func completeValues(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		completeValues(child)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, done := cmd.GetFlagCompletionFunc(f.Name); done {
			return // commands share the flags of settings
		}
		complete := cobra.NoFileCompletions
		switch name, _ := pflag.UnquoteUsage(f); {
		case slices.Contains([]string{"file", "files"}, name):
			return // a shell's default
		case name == "directory":
			complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		case strings.Contains(f.Value.Type(), "|"):
			complete = cobra.FixedCompletions(strings.Split(f.Value.Type(), "|"), cobra.ShellCompDirectiveNoFileComp)
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // it is the command's, and has none yet
		}
	})
}
