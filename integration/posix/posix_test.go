package posix

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// Every case of posixCases makes real system calls and writes down what came of them: results, errnos,
// attributes, sums of bytes. It is carried out by a process of its own on the mount and by another on a plain
// ext4 folder, and the two transcripts have to be the same. What a case prepares is brought into each state
// of posixStates before it goes on.

// posixCase is one case. prepare may be nil: the case then does not depend on a file's state, and runs in one
// only.
type posixCase struct {
	name    string
	root    bool // needs root
	prepare func(w *world)
	run     func(w *world)
}

func posixCases() []posixCase {
	return slices.Concat(openCases, writeCases, spaceCases, copyCases, mapCases, linkCases, renameCases,
		nameCases, dirCases,
		attrCases, timeCases, ownerCases, xattrCases, lockCases, syncCases, execCases)
}

// posixState brings what was prepared into a state. Nil: as it was left.
type posixState struct {
	name string
	to   func(m *mounttest.Mount, dir string)
}

var posixStates = []posixState{
	{"fresh", nil},  // and a writer has it open
	{"closed", nil}, // and perhaps being packed
	{"packed", func(m *mounttest.Mount, dir string) { m.Sync() }},
	{"evicted", evictAll},
	{"remounted", func(m *mounttest.Mount, dir string) { evictAll(m, dir); m.Remount() }},
}

// posixWitness is a file that shows whether a state was reached.
const posixWitness = "/read by pieces/f"

// evictAll evicts what can be. Files that are small, or mostly holes, stay, and the command says so.
func evictAll(m *mounttest.Mount, dir string) {
	m.T.Helper()
	m.Sync()
	_, _ = m.CLI("evict", m.Path(dir))
	if os.Getenv("CKPTFS_POSIX_ONLY") == "" {
		m.WantState(dir+posixWitness, mounttest.Packed)
	}
}

// posixDifference is something that is otherwise than on ext4: a pattern (path.Match) of mode/state/case, and
// why. Where a pattern no longer meets any difference the test says so, unless it is met only sometimes.
type posixDifference struct {
	pattern, why string
	sometimes    bool
}

func (d posixDifference) matches(id string) bool {
	ok, err := path.Match(d.pattern, id)
	return ok && err == nil
}

func TestPOSIX(t *testing.T) {
	t.Parallel()
	met := &posixMet{patterns: map[string]bool{}}
	t.Run("modes", func(t *testing.T) { // returns when all of them have ended
		t.Run("passthrough", func(t *testing.T) {
			t.Parallel()
			m := mounttest.New(t, "--allow-other")
			if s := m.Status(); s.Mode != "passthrough" {
				t.Skipf("no passthrough here: mode %q: %s", s.Mode, s.ModeReason)
			}
			posixStatesOf(t, m, "passthrough", met)
		})
		t.Run("served", func(t *testing.T) {
			t.Parallel()
			flags := []string{"--no-passthrough"}
			if os.Geteuid() == 0 {
				flags = append(flags, "--allow-other")
			}
			posixStatesOf(t, mounttest.New(t, flags...), "served", met)
		})
		t.Run("unprivileged", func(t *testing.T) {
			t.Parallel()
			posixStatesOf(t, mounttest.NewFor(t, mounttest.Nobody), "unprivileged", met)
		})
	})
	if met.modes == 3 && os.Getenv("CKPTFS_POSIX_ONLY") == "" {
		for _, d := range posixDiffers {
			if !met.patterns[d.pattern] && !d.sometimes {
				t.Errorf("posixDiffers: %s meets no difference any more: take it out (%s)", d.pattern, d.why)
			}
		}
	}
}

// posixMet is which differences were met, and in how many modes all cases were run.
type posixMet struct {
	mu       sync.Mutex
	patterns map[string]bool
	modes    int
}

func posixStatesOf(t *testing.T, m *mounttest.Mount, mode string, met *posixMet) {
	plain := filepath.Join(filepath.Dir(m.Store), "plain")
	m.Must(os.Mkdir(plain, 0o755))
	var st unix.Statfs_t
	m.Must(unix.Statfs(plain, &st))
	if st.Type != unix.EXT4_SUPER_MAGIC {
		mounttest.Missing(t, "%s is not on ext4, which the mount is compared with", plain)
	}
	if c := m.Credential; c != nil {
		m.Must(os.Chown(plain, int(c.Uid), int(c.Gid)))
	}
	// Other users have to reach both.
	for d := filepath.Dir(plain); d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if os.Geteuid() == 0 {
			m.Must(os.Chmod(d, 0o755))
		}
	}
	for i, s := range posixStates {
		posixCompare(t, m, plain, mode, s, i > 0, met)
	}
	met.mu.Lock()
	defer met.mu.Unlock()
	met.modes++
}

// posixCompare runs all cases in one state.
func posixCompare(t *testing.T, m *mounttest.Mount, plain, mode string, s posixState, again bool,
	met *posixMet) {
	a := startPosixChild(t, m, m.Path(s.name), s.name, again)
	b := startPosixChild(t, m, filepath.Join(plain, s.name), s.name, again)
	a.until("prepared")
	b.until("prepared")
	if s.to != nil {
		s.to(m, s.name)
	}
	a.proceed()
	b.proceed()
	a.until("done")
	b.until("done")
	// What the cases leave behind is to be the same after everything was packed and read back.
	m.Sync()
	_, _ = m.CLI("evict", m.Path(s.name))
	a.proceed()
	b.proceed()
	got, want := a.transcripts(), b.transcripts()
	a.end()
	b.end()
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		id := mode + "/" + s.name + "/" + name
		diff := differentLines(want[name], got[name])
		why := ""
		for _, d := range posixDiffers {
			if diff != "" && d.matches(id) {
				why = d.why
				met.mu.Lock()
				met.patterns[d.pattern] = true
				met.mu.Unlock()
			}
		}
		if diff != "" && why == "" {
			t.Errorf("%s:\n%s", id, diff)
		}
	}
}

// differentLines shows where two transcripts part, at most some lines of it.
func differentLines(want, got []string) string {
	var b strings.Builder
	for i := range max(len(want), len(got)) {
		var w, g string
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			fmt.Fprintf(&b, "    ext4:  %s\n    mount: %s\n", w, g)
			if b.Len() > 1500 {
				b.WriteString("    ...\n")
				break
			}
		}
	}
	return b.String()
}

// posixChildProcess carries out all cases in a folder.
type posixChildProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPosixChild(t *testing.T, m *mounttest.Mount, dir, state string, again bool) *posixChildProcess {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), posixChildEnv+"="+dir, "CKPTFS_POSIX_STATE="+state)
	if again {
		cmd.Env = append(cmd.Env, "CKPTFS_POSIX_AGAIN=1")
	}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	if m.Credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.Credential}
		cmd.Env = append(cmd.Env, "HOME=/")
	}
	c := &posixChildProcess{t: t, cmd: cmd}
	in, err := cmd.StdinPipe()
	m.Must(err)
	out, err := cmd.StdoutPipe()
	m.Must(err)
	c.in, c.out = in, bufio.NewReaderSize(out, 1<<20)
	m.Must(cmd.Start())
	t.Cleanup(func() { // does nothing to one that has ended in order
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	return c
}

func (c *posixChildProcess) until(word string) {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != word {
		c.t.Fatalf("the process that carries out the cases said %q, want %q: %v", line, word, err)
	}
}

func (c *posixChildProcess) proceed() {
	c.t.Helper()
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *posixChildProcess) transcripts() map[string][]string {
	c.t.Helper()
	var all map[string][]string
	if err := json.NewDecoder(c.out).Decode(&all); err != nil {
		c.t.Fatalf("the process that carries out the cases: %v", err)
	}
	return all
}

func (c *posixChildProcess) end() {
	c.t.Helper()
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("the process that carries out the cases: %v", err)
	}
}
