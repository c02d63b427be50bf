package man

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// plain undoes what a page escapes.
var plain = strings.NewReplacer(`\-`, "-", `\e`, `\`, `\&`, "")

// Pages have what help has, also what means something in Markdown, through which they come.
func TestPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "prog", Version: "1.2"}
	root.CompletionOptions.HiddenDefaultCmd = true
	sub := &cobra.Command{Use: "pack [PATH]", Short: "Pack", Run: run, Long: `Packs runs/* and a_b_c below it.

    prog pack --keep '*'   # as it is`}
	sub.Flags().Bool("keep-all", false, "keep what *_best names")
	root.AddCommand(sub, &cobra.Command{Use: "codes", Short: "Codes", Long: "    0  done\n    1  failed"},
		&cobra.Command{Use: "secret", Hidden: true, Run: run}, Command())
	dir := t.TempDir()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, pattern := range []string{"man1/*", "man7/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, p := range found {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			pages[filepath.Base(p)] = plain.Replace(string(b))
		}
	}
	if len(pages) != 3 {
		t.Errorf("pages: %d", len(pages))
	}
	for page, wants := range map[string][]string{
		"prog.1":       {"prog-pack(1)", `"Jan 1970" "prog 1.2"`},
		"prog-pack.1":  {"runs/* and a_b_c below it", "prog pack --keep '*'   # as it is", "--keep-all", "*_best"},
		"prog-codes.7": {"0  done\n1  failed", "prog(1)"},
	} {
		for _, wrong := range []string{"[=false]", "prog(7)", "prog codes"} {
			if strings.Contains(pages[page], wrong) {
				t.Errorf("%s has %q:\n%s", page, wrong, pages[page])
			}
		}
		for _, want := range wants {
			if !strings.Contains(pages[page], want) {
				t.Errorf("%s lacks %q:\n%s", page, want, pages[page])
			}
		}
	}
}
