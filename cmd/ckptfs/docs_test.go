package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/fs/tree"
)

const (
	repository   = "../.."
	readmeLines  = 120  // of the README
	howWords     = 1500 // of docs/how-it-works.md, with its diagrams
	docColumns   = 110  // of a line that is no row of a table
	documentsDir = "docs"
)

// document is one page.
type document struct {
	path  string // relative to the repository
	lines []string
	code  []bool // per line: it is in a code block
}

// documents are README.md and all pages below docs/.
func documents(t *testing.T) []document {
	t.Helper()
	paths := []string{"README.md"}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob(filepath.Join(repository, documentsDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range found {
			rel, err := filepath.Rel(repository, p)
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, rel)
		}
	}
	var all []document
	for _, p := range paths {
		b, err := os.ReadFile(filepath.Join(repository, p))
		if err != nil {
			t.Fatal(err)
		}
		d := document{path: p, lines: strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")}
		fenced := false
		for _, line := range d.lines {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			d.code = append(d.code, fenced || strings.HasPrefix(line, "    "))
		}
		all = append(all, d)
	}
	return all
}

func TestDocumentsFit(t *testing.T) {
	for _, d := range documents(t) {
		if d.path == "README.md" && len(d.lines) > readmeLines {
			t.Errorf("README.md has %d lines, and may have %d", len(d.lines), readmeLines)
		}
		if d.path == filepath.Join(documentsDir, "how-it-works.md") {
			if n := len(strings.Fields(strings.Join(d.lines, "\n"))); n > howWords {
				t.Errorf("%s has %d words, and may have %d", d.path, n, howWords)
			}
		}
		for i, line := range d.lines {
			if n := utf8.RuneCountInString(line); n > docColumns && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d: %d columns", d.path, i+1, n)
			}
		}
	}
}

// Each page says in its first line for whom it is.
func TestDocumentsSayForWhom(t *testing.T) {
	for _, d := range documents(t) {
		if d.path == "README.md" {
			continue
		}
		if len(d.lines) < 3 || !strings.HasPrefix(d.lines[0], "# ") ||
			!strings.HasPrefix(d.lines[2], "For ") {
			t.Errorf("%s: the line below the title does not begin with the reader (For developers: …)", d.path)
		}
	}
}

var (
	linkPattern = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codePattern = regexp.MustCompile("`[^`]*`")
)

// anchor is the fragment that leads to a heading.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteRune('-')
		}
	}
	return b.String()
}

// Each relative link leads to a file, and its fragment to a heading there.
func TestDocumentsLink(t *testing.T) {
	all := documents(t)
	anchors := map[string]map[string]bool{}
	for _, d := range all {
		anchors[d.path] = map[string]bool{}
		for i, line := range d.lines {
			if heading := strings.TrimLeft(line, "#"); heading != line && !d.code[i] {
				anchors[d.path][anchor(strings.TrimSpace(heading))] = true
			}
		}
	}
	for _, d := range all {
		for i, line := range d.lines {
			if d.code[i] {
				continue
			}
			for _, m := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(line, ""), -1) {
				target, fragment, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") {
					continue
				}
				to := d.path
				if target != "" {
					to = filepath.Join(filepath.Dir(d.path), target)
				}
				if _, err := os.Stat(filepath.Join(repository, to)); err != nil {
					t.Errorf("%s:%d: %s: %v", d.path, i+1, m[1], err)
				} else if known, page := anchors[to]; fragment != "" && page && !known[fragment] {
					t.Errorf("%s:%d: %s has no heading %q", d.path, i+1, to, fragment)
				}
			}
		}
	}
}

// docs/README.md leads to each page, and the README of a folder of notes to each note.
func TestDocumentsAreListed(t *testing.T) {
	all := documents(t)
	listed := map[string]bool{}
	for _, d := range all {
		if filepath.Base(d.path) != "README.md" {
			continue
		}
		for _, line := range d.lines {
			for _, m := range linkPattern.FindAllStringSubmatch(line, -1) {
				target, _, _ := strings.Cut(m[1], "#")
				if d.path != "README.md" {
					listed[filepath.Join(filepath.Dir(d.path), target)] = true
				}
			}
		}
	}
	for _, d := range all {
		if !listed[d.path] && d.path != filepath.Join(documentsDir, "README.md") {
			t.Errorf("no README.md in %s leads to %s", documentsDir, d.path)
		}
	}
}

// The worked examples are those of the goldens.
func TestDocumentsShowGoldens(t *testing.T) {
	goldens := ""
	for _, p := range []string{"fs/tree/testdata/record.golden", "cas/segment/testdata/segment.golden"} {
		b, err := os.ReadFile(filepath.Join(repository, p))
		if err != nil {
			t.Fatal(err)
		}
		goldens += string(b)
	}
	hex := regexp.MustCompile(`^    (\d{4,6}  [0-9a-f]{2}(?: [0-9a-f]{2})*)(?:$|  )`)
	shown := 0
	for _, d := range documents(t) {
		for i, line := range d.lines {
			v, ok := strings.CutPrefix(line, "    ckptfs ")
			if ok && strings.Trim(v, "0123456789") == "" && v != strconv.Itoa(tree.Version) {
				t.Errorf("%s:%d: stores have format %d", d.path, i+1, tree.Version)
			}
			m := hex.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			shown++
			if !strings.Contains(goldens, "\n"+m[1]+" ") && !strings.Contains(goldens, "\n"+m[1]+"\n") {
				t.Errorf("%s:%d: no golden has %q", d.path, i+1, m[1])
			}
		}
	}
	if shown == 0 {
		t.Error("no document shows bytes")
	}
}

// docs/commands.md has every command, every flag, and every exit code.
func TestDocumentsNameCommands(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(repository, documentsDir, "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, c := range (&app{out: io.Discard, err: io.Discard}).root().Commands() {
		if c.Runnable() && !c.Hidden && c.Name() != "help" &&
			!regexp.MustCompile("(?m)^\\| `"+c.Name()+"[ `]").MatchString(text) {
			t.Errorf("commands.md has no row of %s", c.Name())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && f.Name != "json" && !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("commands.md does not name --%s of %s", f.Name, c.Name())
			}
		})
	}
	for _, code := range []int{exit.OK, exit.Failure, exit.Usage, exit.NotStore, exit.Busy, exit.Newer,
		exit.Damaged, exit.Partial,
		exit.Mountpoint, exit.NoFUSE, exit.Recovery, exit.Interrupted} {
		if !strings.Contains(text, fmt.Sprintf("\n| %d |", code)) {
			t.Errorf("commands.md has no row of exit code %d", code)
		}
	}
}

var pathPattern = regexp.MustCompile("`((?:cas|formats|index|fs|cmd|integration|packaging|scripts)/[A-Za-z0-9_./-]*[A-Za-z0-9_])`|go doc ckptfs/([a-z0-9/]+)")

// Files, folders and packages that the documents name are there.
func TestDocumentsNameFiles(t *testing.T) {
	for _, d := range documents(t) {
		for i, line := range d.lines {
			for _, m := range pathPattern.FindAllStringSubmatch(line, -1) {
				p := m[1] + m[2]
				if strings.Contains(p, "NAME") {
					continue
				}
				if _, err := os.Stat(filepath.Join(repository, p)); err != nil {
					t.Errorf("%s:%d: there is no %s", d.path, i+1, p)
				}
			}
		}
	}
}

// docs/architecture.md says of every package what it is for.
func TestDocumentsListPackages(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(repository, documentsDir, "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := func(pkg string) {
		short := "`" + pkg[strings.LastIndexByte(pkg, '/')+1:] + "`" // in a row of several
		if text := string(b); !strings.Contains(text, "`"+pkg+"`") && !strings.Contains(text, ", "+short) {
			t.Errorf("architecture.md does not list %s", pkg)
		}
	}
	for _, l := range layers {
		listed(l.pkg)
	}
	tests, err := filepath.Glob(filepath.Join(repository, "integration", "*", "*_test.go"))
	if err != nil || len(tests) == 0 {
		t.Fatal(tests, err)
	}
	for _, p := range tests {
		listed("integration/" + filepath.Base(filepath.Dir(p)))
	}
}

var testPattern = regexp.MustCompile("`(Test[A-Za-z0-9_]+)(…?)`")

// Tests that the documents name are there.
func TestDocumentsNameTests(t *testing.T) {
	known := map[string]bool{}
	err := filepath.WalkDir(repository, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		b, err := os.ReadFile(p)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(b), -1) {
			known[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t) {
		for i, line := range d.lines {
			for _, m := range testPattern.FindAllStringSubmatch(line, -1) {
				found := known[m[1]]
				for name := range known {
					found = found || m[2] != "" && strings.HasPrefix(name, m[1])
				}
				if !found {
					t.Errorf("%s:%d: there is no %s", d.path, i+1, m[1])
				}
			}
		}
	}
}
