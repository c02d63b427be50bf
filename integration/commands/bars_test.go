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

// TestBars runs each command that may take long with a terminal, where it says what it does and how far it
// is, and without one, where it says nothing of that.
func TestBars(t *testing.T) {
	m := mounttest.New(t)
	n := uint64(0)
	fill := func() {
		for _, name := range []string{"runs/a/1/x.safetensors", "runs/a/2/x.safetensors"} {
			n++
			file, _ := mounttest.SafetensorsOf([]string{"w"}, [][]byte{mounttest.Noise(n, 8*mib)})
			m.Write(name, file)
		}
	}
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
	run := func(stderr *os.File, args ...string) string {
		t.Helper()
		cmd := exec.Command(m.Bin, args...)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if stderr != nil {
			cmd.Stderr = stderr
		}
		if err := cmd.Run(); err != nil {
			t.Errorf("ckptfs %s: %v\n%s%s", strings.Join(args, " "), err, &out, &said)
		}
		return said.String()
	}
	for _, tc := range []struct {
		word string
		args func() []string
	}{
		{"packing", func() []string { fill(); return []string{"sync", m.Dir} }},
		{"evicting", func() []string { m.Run("hydrate", m.Dir); return []string{"evict", m.Dir} }},
		{"hydrating", func() []string { m.Run("evict", m.Dir); return []string{"hydrate", m.Dir} }},
		{"checking segments", func() []string { return []string{"check", m.Dir} }},
		{"checking segments", func() []string { return []string{"check", "--read-data", m.Dir} }},
		{"pruning", func() []string { return []string{"prune", "--grace", "0", m.Dir} }},
		{"compacting", func() []string { return []string{"compact", m.Dir} }},
		{"comparing", func() []string { return []string{"diff", m.Path("runs/a/1"), m.Path("runs/a/2")} }},
		{"reading", func() []string { return []string{"show", "--stats", m.Path("runs/a/1/x.safetensors")} }},
		{"reading lineages", func() []string { return []string{"runs", "--tree", m.Dir} }},
		{"copying", func() []string { return []string{"cp", "-r", m.Path("runs"), fresh("copy")} }},
		{"exporting", func() []string { return []string{"export", "-o", fresh("tar"), m.Path("runs/a/1")} }},
		{"estimating", func() []string { return []string{"estimate", "--full", plain(256 * mib)} }},
		{"looking at names", func() []string {
			return []string{"adopt", "--into", m.Path(filepath.Base(fresh("into"))), plain(mib)}
		}},
		{"copying", func() []string { return []string{"leave", m.Dir, "--copy", fresh("left")} }},
		{"packing", func() []string { again(); fill(); return []string{"umount", m.Dir} }},
		{"repairing", func() []string { return []string{"repair", "segments", m.Store} }},
		{"repairing", func() []string { return []string{"repair", "tree", m.Store} }},
	} {
		args := tc.args()
		name := strings.Join(args[:2], " ")
		x := texttest.New(t, 200, 40)
		run(x.File, args...)
		said := x.End()
		if !strings.Contains(said, tc.word) {
			t.Errorf("%s on a terminal: no %q in %q", name, tc.word, said)
		}
		last := said[strings.LastIndexByte(said, '\r')+1:]
		if strings.Trim(last, "\x1b[K \n") != "" && !strings.Contains(last, "\n") {
			t.Errorf("%s leaves %q", name, last)
		}
		if said := run(nil, tc.args()...); strings.Contains(said, "\r") || strings.Contains(said, "\x1b") {
			t.Errorf("%s, no terminal: %q", name, said)
		}
		x = texttest.New(t, 200, 40)
		run(x.File, append(tc.args(), "--json")...)
		if said := x.End(); strings.Contains(said, "\x1b") || strings.Contains(said, "%") {
			t.Errorf("%s --json: %q", name, said)
		}
	}
}
