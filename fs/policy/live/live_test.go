package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cas/disk"
	"ckptfs/fs/policy"
)

// What a user writes holds once it was read, what cannot be read changes nothing, and no change loses what
// was written by hand.
func TestLive(t *testing.T) {
	dir := t.TempDir()
	folder, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	file := filepath.Join(dir, "policy")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := Open(folder, false)
	changes := 0
	l.Changed = func(before, now *policy.Policy) { changes++ }
	if l.Problem() != "" || l.Now() != nil {
		t.Fatal(l.Problem())
	}
	r, err := policy.ParseRule("*.gguf", "plain")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add(r); err != nil || !l.Is(policy.Plain, "a.gguf") || changes != 1 {
		t.Fatal(err, changes)
	}
	write(policy.Head + "\n# by hand\n*.gguf plain\n/a hydrated\n")
	if l.Is(policy.Hydrated, "a") {
		t.Error("it was read by itself")
	}
	if err := l.Load(); err != nil || !l.Is(policy.Hydrated, "a") {
		t.Error(err)
	}
	write(policy.Head + "\n*.gguf packed\n")
	if err := l.Load(); err == nil || !strings.Contains(err.Error(), "line 2") ||
		!strings.Contains(l.Problem(), "line 2") {
		t.Errorf("%v, %q", err, l.Problem())
	}
	if err := l.Add(r); err == nil || !l.Is(policy.Hydrated, "a") {
		t.Errorf("%v: the last good rules do not hold", err)
	}
	if again := Open(folder, false); again.Problem() == "" || again.Now() != nil {
		t.Error("a start takes rules that it cannot read")
	}
	write(policy.Head + "\n# by hand\n*.gguf plain\n")
	if n, err := l.Remove("", "*.gguf"); n != 1 || err != nil || l.Problem() != "" ||
		l.Is(policy.Plain, "a.gguf") {
		t.Error(n, err, l.Problem())
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != policy.Head+"\n# by hand\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := Open(folder, true).Add(r); err == nil {
		t.Error("a read-only store was changed")
	}
}
