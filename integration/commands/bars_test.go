package commands

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cmd/ckptfs/text/texttest"
	"ckptfs/integration/mounttest"
)

// bar is a command that may take long, and a word of what it says meanwhile.
type bar struct {
	word string
	args func() []string // also makes what the command has to do
}

// bars runs each command with a terminal, where it says what it does and how far it is, and without one or
// with --json, where it says nothing of that.
func bars(m *mounttest.Mount, all []bar) {
	t := m.T
	t.Helper()
	for _, b := range all {
		args := b.args()
		name := strings.Join(args[:2], " ")
		x := texttest.New(t, 200, 40)
		withErrors(m, x.File, args...)
		said := x.End()
		if !strings.Contains(said, b.word) {
			t.Errorf("%s on a terminal: no %q in %q", name, b.word, said)
		}
		last := said[strings.LastIndexByte(said, '\r')+1:]
		if strings.Trim(last, "\x1b[K \n") != "" && !strings.Contains(last, "\n") {
			t.Errorf("%s leaves %q", name, last)
		}
		if plain := withErrors(m, nil, b.args()...); strings.ContainsAny(plain, "\r\x1b") {
			t.Errorf("%s, no terminal: %q", name, plain)
		}
		x = texttest.New(t, 200, 40)
		withErrors(m, x.File, append(b.args(), "--json")...)
		if said := x.End(); strings.Contains(said, "\x1b") || strings.Contains(said, "%") {
			t.Errorf("%s --json: %q", name, said)
		}
	}
}

// withErrors runs a command whose standard error is a terminal, and returns it if it is none.
func withErrors(m *mounttest.Mount, stderr *os.File, args ...string) string {
	m.T.Helper()
	cmd := exec.Command(m.Bin, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if stderr != nil {
		cmd.Stderr = stderr
	}
	if err := cmd.Run(); err != nil {
		m.T.Errorf("ckptfs %s: %v\n%s%s", strings.Join(args, " "), err, &out, &said)
	}
	return said.String()
}

// filling writes two steps of a run, each time others.
func filling(m *mounttest.Mount) func() {
	n := uint64(0)
	return func() {
		for _, name := range []string{"runs/a/1/x.safetensors", "runs/a/2/x.safetensors"} {
			n++
			file, _ := mounttest.SafetensorsOf([]string{"w"}, [][]byte{mounttest.Noise(n, 8*mib)})
			m.Write(name, file)
		}
	}
}

func TestBars(t *testing.T) {
	m := mounttest.New(t)
	fill := filling(m)
	n := uint64(1000)
	tmp := t.TempDir()
	again := func() {
		if !m.Mounted() {
			m.Must(m.Start())
		}
	}
	fresh := func(name string) string {
		n++
		return filepath.Join(tmp, name+string(rune('a'+n%26))+string(rune('a'+n/26)))
	}
	plain := func(size int) string {
		dir := fresh("folder")
		m.Must(os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
		for i := range 100 {
			m.Must(os.WriteFile(filepath.Join(dir, "sub", fmt.Sprint(i)), nil, 0o644))
		}
		m.Must(os.WriteFile(filepath.Join(dir, "sub", "x.bin"), mounttest.Noise(n, size), 0o644))
		return dir
	}
	bars(m, []bar{
		{"packing", func() []string { fill(); return []string{"sync", m.Dir} }},
		{"evicting", func() []string { m.Run("hydrate", m.Dir); return []string{"evict", m.Dir} }},
		{"hydrating", func() []string { m.Run("evict", m.Dir); return []string{"hydrate", m.Dir} }},
		{"hydrating", func() []string { m.Run("evict", m.Dir); return []string{"pin", m.Path("runs")} }},
		{"hydrating", func() []string { m.Run("evict", m.Dir); return []string{"warm", m.Dir} }},
		{"reading", func() []string { return []string{"warm", m.Path("runs/a/1")} }},
		{"checking segments", func() []string { return []string{"check", m.Dir} }},
		{"checking segments", func() []string { return []string{"check", "--read-data", m.Dir} }},
		{"pruning", func() []string { return []string{"prune", "--grace", "0", m.Dir} }},
		{"compacting", func() []string { return []string{"compact", m.Dir} }},
		{"comparing", func() []string { return []string{"diff", m.Path("runs/a/1"), m.Path("runs/a/2")} }},
		{"reading", func() []string { return []string{"show", "--stats", m.Path("runs/a/1/x.safetensors")} }},
		{"reading lineages", func() []string { return []string{"runs", "--tree", m.Dir} }},
		{"copying", func() []string { return []string{"cp", "-r", m.Path("runs"), fresh("copy")} }},
		{"exporting", func() []string { return []string{"export", "-o", fresh("tar"), m.Path("runs/a/1")} }},
		{"looking at names", func() []string { return []string{"estimate", plain(mib)} }},
		{"looking at names", func() []string {
			return []string{"adopt", "--into", m.Path(filepath.Base(fresh("into"))), plain(mib)}
		}},
		{"copying", func() []string { return []string{"leave", m.Dir, "--copy", fresh("left")} }},
		{"packing", func() []string { again(); fill(); return []string{"umount", m.Dir} }},
		{"repairing", func() []string { return []string{"repair", "segments", m.Store} }},
		{"repairing", func() []string { return []string{"repair", "tree", m.Store} }},
	})
}

func TestBarsOfRemote(t *testing.T) {
	e := mounttest.StartEngine(t)
	m := mounttest.New(t, "--push", "manual")
	m.Join(e, "bars", "a")
	fill := filling(m)
	bars(m, []bar{
		{"publishing", func() []string { fill(); return []string{"push", m.Dir} }},
		{"dropping", func() []string { m.Run("pull", m.Dir); return []string{"drop", m.Path("runs/a")} }},
		{"pulling", func() []string {
			m.Run("drop", m.Path("runs/a"))
			return []string{"pull", m.Path("runs/a")}
		}},
		{"", func() []string { return []string{"fetch", m.Dir} }},
		{"", func() []string { return []string{"check", m.Dir, "--remote"} }},
		{"", func() []string { return []string{"prune", m.Dir, "--remote"} }},
	})
}
