// Package man writes the manual pages of the program from what its commands say of themselves: ckptfs(1), one
// page for each command, and ckptfs-TOPIC(7) for what only help prints. SOURCE_DATE_EPOCH dates them.
package man

import (
	"fmt"
	"os"
	"path/filepath"
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
	commands := filepath.Join(dir, "man1")
	if err := os.MkdirAll(commands, 0o755); err != nil {
		return err
	}
	if err := doc.GenManTree(root, header(root, "1"), commands); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	topics := filepath.Join(dir, "man7")
	if err := os.MkdirAll(topics, 0o755); err != nil {
		return err
	}
	for _, c := range root.Commands() {
		if c.IsAdditionalHelpTopicCommand() && !c.Hidden {
			if err := topic(topics, c); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
		}
	}
	return nil
}

func header(root *cobra.Command, section string) *doc.GenManHeader {
	return &doc.GenManHeader{Section: section, Source: root.Name() + " " + root.Version, Manual: root.Name()}
}

func topic(dir string, c *cobra.Command) error {
	f, err := os.Create(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".7"))
	if err != nil {
		return err
	}
	if err := doc.GenMan(c, header(c.Root(), "7"), f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
