package mounttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/daemon"
)

// Mount is a store of its own with a daemon, for one test.
type Mount struct {
	*daemon.Daemon
	T *testing.T
}

// Stats is what `stats --json` prints, as far as the tests look.
type Stats struct {
	Files         int64 `json:"files"`
	PackedFiles   int64 `json:"packed_files"`
	Tensors       int64 `json:"tensors"`
	Chunks        int64 `json:"chunks"`
	LogicalBytes  int64 `json:"logical_bytes"`
	UniqueBytes   int64 `json:"unique_bytes"`
	StoredBytes   int64 `json:"stored_bytes"`
	SegmentBytes  int64 `json:"segment_bytes"`
	ResidentBytes int64 `json:"resident_bytes"`
	Runs          []struct {
		Run          string `json:"run"`
		Files        int64  `json:"files"`
		LogicalBytes int64  `json:"logical_bytes"`
	} `json:"runs"`
}

// Status is what `status --json` prints.
type Status struct {
	Mountpoint string `json:"mountpoint"`
	Metrics    string `json:"metrics"`
	Mode       string `json:"mode"`
	ModeReason string `json:"mode_reason"`
	PID        int    `json:"pid"`
	Queue      struct {
		Files int   `json:"files"`
		Bytes int64 `json:"bytes"`
	} `json:"queue"`
	PackingWaits  string `json:"packing_waits"`
	UnpackedBytes int64  `json:"unpacked_bytes"`
	OpenFiles     int    `json:"open_files"`
	LastPrune     struct {
		At         string `json:"at"`
		FreedBytes int64  `json:"freed_bytes"`
		ByItself   bool   `json:"by_itself"`
	} `json:"last_prune"`
	Failures []struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	} `json:"failures"`
}

// File is what `show --json` prints of a file.
type File struct {
	Format   string `json:"format"`
	Size     int64  `json:"size"`
	State    string `json:"state"`
	View     bool   `json:"view"`
	Artifact string `json:"artifact"`
	Tensors  []struct {
		Name       string   `json:"name"`
		DType      string   `json:"dtype"`
		Shape      []int64  `json:"shape"`
		Bytes      int64    `json:"bytes"`
		SharedWith []string `json:"shared_with"`
	} `json:"tensors"`
}

// MaxLife bounds the life of one test's mount.
const MaxLife = 8 * time.Minute

const (
	Plain    = "plain"
	Resident = "resident"
	Packed   = "packed"
)

// New makes an empty store and mounts it. When the test is over everything is unmounted and ended; a test
// that passed has to unmount in order.
func New(t *testing.T, flags ...string) *Mount {
	t.Helper()
	m := Prepare(t, t.TempDir(), flags...)
	m.Must(m.Start())
	return m
}

// Prepare is New in a folder of the caller's, without mounting.
func Prepare(t *testing.T, dir string, flags ...string) *Mount {
	t.Helper()
	return PrepareFor(t, dir, MaxLife, flags...)
}

// PrepareFor is prepare for a test whose mount may live longer.
func PrepareFor(t *testing.T, dir string, life time.Duration, flags ...string) *Mount {
	t.Helper()
	NeedFUSE(t)
	// Said, so that packing does not keep out of the way of the tests beside this one.
	flags = append([]string{"--pack-cpus", strconv.Itoa(runtime.NumCPU())}, flags...)
	m := &Mount{T: t, Daemon: &daemon.Daemon{
		Bin: Bin, Flags: flags,
		Store: filepath.Join(dir, "store"), Dir: filepath.Join(dir, "mnt"), Log: filepath.Join(dir, "log"),
	}}
	m.Must(os.Mkdir(m.Dir, 0o755))
	// Who waits for a daemon that hangs cannot be killed, go test's own timeout included. The daemon can.
	watchdog := time.AfterFunc(life, func() {
		t.Errorf("the mount is still in use after %v: the daemon is taken to hang, and killed", life)
		m.Dump()
		_ = m.Clean()
	})
	t.Cleanup(func() {
		watchdog.Stop()
		if !t.Failed() && m.Mounted() {
			if err := m.Stop(); err != nil {
				t.Errorf("unmounting at the test's end: %v", err)
			}
		}
		if err := m.Clean(); err != nil {
			t.Error(err)
		}
		log := m.LogText()
		for _, bad := range []string{"panic", "DATA RACE", "fatal error"} {
			if strings.Contains(log, bad) {
				t.Errorf("the daemon's log has %q in it", bad)
			}
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", log)
		}
	})
	return m
}

// Modes runs a test on a mount with passthrough, and on one where the daemon serves every read and write.
func Modes(t *testing.T, f func(t *testing.T, m *Mount), flags ...string) {
	t.Run("passthrough", func(t *testing.T) {
		t.Parallel()
		m := New(t, flags...)
		if s := m.Status(); s.Mode != "passthrough" {
			t.Skipf("no passthrough here: mode %q: %s", s.Mode, s.ModeReason)
		}
		f(t, m)
	})
	t.Run("served", func(t *testing.T) {
		t.Parallel()
		f(t, New(t, append(slices.Clone(flags), "--no-passthrough")...))
	})
}

// Must fails the test on an error.
func (m *Mount) Must(err error) {
	m.T.Helper()
	if err != nil {
		m.T.Fatal(err)
	}
}

// LogText is the daemon's log.
func (m *Mount) LogText() string {
	b, err := os.ReadFile(m.Log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Path is a name below the mountpoint.
func (m *Mount) Path(elem ...string) string {
	return filepath.Join(append([]string{m.Dir}, elem...)...)
}

// Run runs a command that has to succeed.
func (m *Mount) Run(args ...string) string {
	m.T.Helper()
	out, err := m.CLI(args...)
	m.Must(err)
	return out
}

// RunFails runs a command that has to fail, and returns what it said and its exit status.
func (m *Mount) RunFails(args ...string) (string, int) {
	m.T.Helper()
	out, err := m.CLI(args...)
	var exit *daemon.ExitError
	if !errors.As(err, &exit) {
		m.T.Fatalf("ckptfs %s succeeded and said: %s", strings.Join(args, " "), out)
	}
	if exit.Code < 0 {
		m.T.Fatalf("it should have failed in order: %v", err)
	}
	return exit.Stderr, exit.Code
}

// JSON runs a command that has to succeed and decodes what it printed into v.
func (m *Mount) JSON(v any, args ...string) {
	m.T.Helper()
	out := m.Run(args...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		m.T.Fatalf("ckptfs %s: %v in:\n%s", strings.Join(args, " "), err, out)
	}
}

// Stats runs `stats --json` on the mount.
func (m *Mount) Stats() (s Stats) {
	m.T.Helper()
	m.JSON(&s, "stats", "--json", m.Dir)
	return s
}

// Status runs `status --json` on the mount.
func (m *Mount) Status() (s Status) {
	m.T.Helper()
	m.JSON(&s, "status", "--json", m.Dir)
	return s
}

// Show runs `show --json` on a file of the mount.
func (m *Mount) Show(name string) (f File) {
	m.T.Helper()
	m.JSON(&f, "show", "--json", m.Path(name))
	return f
}

// Sync packs what is in the queue.
func (m *Mount) Sync() {
	m.T.Helper()
	m.Run("sync", m.Dir)
}

// Evict syncs first: what is not packed cannot be evicted. It checks that the local copies went, and gives
// the kernel time to let go of a file that was closed just now.
func (m *Mount) Evict(names ...string) {
	m.T.Helper()
	m.Sync()
	for _, n := range names {
		var said string
		err := daemon.Until(n+" to be evicted", func() bool {
			said, _ = m.RunOutcome("evict", m.Path(n))
			return m.Show(n).State == Packed
		})
		if err != nil {
			m.T.Fatalf("%v; evict said: %s", err, said)
		}
	}
}

// Hydrate hydrates files, and checks that they are resident.
func (m *Mount) Hydrate(names ...string) {
	m.T.Helper()
	for _, n := range names {
		m.Run("hydrate", m.Path(n))
		m.WantState(n, Resident)
	}
}

// WantState checks a file's state, and waits for it: the last step to it may be in the background.
func (m *Mount) WantState(name string, states ...string) {
	m.T.Helper()
	var got string
	err := daemon.Within(daemon.Patience/4, "", func() bool {
		got = m.Show(name).State
		return slices.Contains(states, got)
	})
	if err != nil {
		m.T.Fatalf("%s is %q, want %q", name, got, states)
	}
}

// Kill is Kill9, which has to succeed.
func (m *Mount) Kill() {
	m.T.Helper()
	m.Must(m.Kill9())
}

// Remount ends in order and starts again.
func (m *Mount) Remount() {
	m.T.Helper()
	m.Must(m.Stop())
	m.Must(m.Start())
}

// Write makes a file, and its folders.
func (m *Mount) Write(name string, data []byte) {
	m.T.Helper()
	m.Must(os.MkdirAll(filepath.Dir(m.Path(name)), 0o755))
	m.Must(os.WriteFile(m.Path(name), data, 0o644))
}

// Want checks a file's bytes, by read and by size.
func (m *Mount) Want(name string, data []byte) {
	m.T.Helper()
	got, err := os.ReadFile(m.Path(name))
	m.Must(err)
	if !bytes.Equal(got, data) {
		m.T.Fatalf("%s: %s", name, Difference(data, got))
	}
	st, err := os.Stat(m.Path(name))
	m.Must(err)
	if st.Size() != int64(len(data)) {
		m.T.Fatalf("%s: size %d, want %d", name, st.Size(), len(data))
	}
}

// Difference tells where two byte strings part, and how much of what they have in common differs.
func Difference(want, got []byte) string {
	n := min(len(want), len(got))
	first, last, differ, zeros := n, n, 0, 0
	for i := range n {
		if want[i] == got[i] {
			continue
		}
		first, last = min(first, i), i
		differ++
		if got[i] == 0 {
			zeros++
		}
	}
	return fmt.Sprintf("%d bytes, want %d; they part at %d; up to %d %d differ, %d of them are zero", len(got),
		len(want), first, last, differ, zeros)
}

// Sum is the SHA-256 of a file, in hex.
func (m *Mount) Sum(name string) string {
	m.T.Helper()
	f, err := os.Open(m.Path(name))
	m.Must(err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	m.Must(err)
	return hex.EncodeToString(h.Sum(nil))
}

// Sh runs a shell command in the mount's root.
func (m *Mount) Sh(command string) string {
	m.T.Helper()
	cmd := exec.Command("sh", "-ec", command)
	cmd.Dir = m.Dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.T.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Noise is n bytes that do not compress, from a seed.
func Noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// RunOutcome runs a command that may fail.
func (m *Mount) RunOutcome(args ...string) (said string, code int) {
	m.T.Helper()
	out, err := m.CLI(args...)
	var exit *daemon.ExitError
	if errors.As(err, &exit) {
		return exit.Stderr, exit.Code
	}
	return out, 0
}

// EvictAll packs everything and drops every raw copy.
func (m *Mount) EvictAll() {
	m.T.Helper()
	m.Sync()
	var said string
	err := daemon.Until("eviction", func() bool { // the kernel closes in its own time what a program closed
		var code int
		said, code = m.RunOutcome("evict", m.Dir)
		return code == 0
	})
	if err != nil {
		m.T.Fatalf("evict: %s", said)
	}
}

// Names lists a folder of the mount, sorted.
func (m *Mount) Names(dir string) []string {
	m.T.Helper()
	entries, err := os.ReadDir(m.Path(dir))
	m.Must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// WantNames checks what a folder of the mount holds; want is sorted.
func (m *Mount) WantNames(dir string, want ...string) {
	m.T.Helper()
	if got := m.Names(dir); !slices.Equal(got, want) {
		m.T.Errorf("%s holds %q, want %q", dir, got, want)
	}
}
