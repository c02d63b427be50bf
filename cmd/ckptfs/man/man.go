// Package man writes the manual pages of the program from what its commands say of themselves: ckptfs(1), one
// page for each command, and ckptfs-TOPIC(7) for what only help prints. SOURCE_DATE_EPOCH dates them.
package man

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Command is run when the program is installed or packed, and not listed.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages of all commands to a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(cmd *cobra.Command, args []string) error { return write(cmd.Root(), args[0]) },
	}
}

// write makes the pages of a program, in man1 and man7 below dir.
func write(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true // the page's date says it
	for _, section := range []string{commands, topics} {
		if err := os.MkdirAll(filepath.Join(dir, "man"+section), 0o755); err != nil {
			return err
		}
	}
	if err := writeBelow(root, dir); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	return nil
}

// The sections of the manual.
const (
	commands = "1"
	topics   = "7"
)

// writeBelow makes the pages of a command and of those that it has.
func writeBelow(c *cobra.Command, dir string) error {
	section := commands
	switch {
	case c.IsAdditionalHelpTopicCommand() && !c.Hidden:
		section = topics
	case c.HasParent() && !c.IsAvailableCommand():
		return nil
	}
	var page strings.Builder
	program := c.Root().Name()
	header := &doc.GenManHeader{Section: section, Source: program + " " + c.Root().Version, Manual: program}
	if err := doc.GenMan(c, header, &page); err != nil {
		return err
	}
	text := strings.ReplaceAll(page.String(), "[=false]", "") // what a switch is without being given
	if section == topics {
		text = without(without(text, "SYNOPSIS"), "OPTIONS")
		text = strings.ReplaceAll(text, program+"("+topics+")", program+"("+commands+")")
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-") + "." + section
	if err := os.WriteFile(filepath.Join(dir, "man"+section, name), []byte(text), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if err := writeBelow(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// without is a page without the sections whose headings begin so.
func without(page, heading string) string {
	parts := strings.Split(page, "\n.SH ")
	parts = slices.DeleteFunc(parts, func(p string) bool { return strings.HasPrefix(p, heading) })
	return strings.Join(parts, "\n.SH ")
}
