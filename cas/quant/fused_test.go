package quant

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFused: where processors multiply and add in one step, which rounds once, the compiler does not have
// them do so. Blocks would be others there.
func TestFused(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package")
	}
	fused := regexp.MustCompile(`\bV?FN?M(ADD|SUB|LA|LS)[A-Z0-9]*\b`)
	for _, target := range []struct{ arch, level, adds string }{
		{"arm64", "", "FADDS"},
		{"amd64", "v3", "ADDSS"},
	} {
		archive := filepath.Join(t.TempDir(), "quant.a")
		build := exec.Command("go", "build", "-o", archive, ".")
		build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+target.arch, "GOAMD64="+target.level,
			"CGO_ENABLED=0", "GOFLAGS=-trimpath")
		if target.level == "" {
			build.Env = append(build.Env, "GOAMD64=v1")
		}
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build, err, out)
		}
		out, err := exec.Command("go", "tool", "objdump", archive).Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), target.adds) {
			t.Fatalf("%s: objdump shows no %s", target.arch, target.adds)
		}
		function := ""
		for line := range strings.Lines(string(out)) {
			if name, ok := strings.CutPrefix(line, "TEXT "); ok {
				function, _, _ = strings.Cut(name, " ")
			}
			if fused.MatchString(line) {
				t.Errorf("%s %s: %s: %s", target.arch, target.level, function, strings.TrimSpace(line))
			}
		}
	}
}
