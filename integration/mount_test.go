package integration

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

// mount is a store of its own with a daemon, for one test.
type mount struct {
	*daemon.Daemon
	t *testing.T
}

// stats, status and file are what the commands print with --json, as far as the tests look.
type stats struct {
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

type status struct {
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
	Failures      []struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	} `json:"failures"`
}

type file struct {
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

// maxLife bounds the life of one test's mount.
const maxLife = 8 * time.Minute

const (
	resident = "resident"
	both     = "resident+packed"
	packed   = "packed"
)

// newMount makes an empty store and mounts it. When the test is over everything is unmounted and ended; a test
// that passed has to unmount in order.
func newMount(t *testing.T, flags ...string) *mount {
	t.Helper()
	m := prepare(t, t.TempDir(), flags...)
	m.must(m.Start())
	return m
}

// prepare is newMount in a folder of the caller's, without mounting.
func prepare(t *testing.T, dir string, flags ...string) *mount {
	t.Helper()
	return prepareFor(t, dir, maxLife, flags...)
}

// prepareFor is prepare for a test whose mount may live longer.
func prepareFor(t *testing.T, dir string, life time.Duration, flags ...string) *mount {
	t.Helper()
	needFUSE(t)
	// Said, so that packing does not keep out of the way of the tests beside this one.
	flags = append([]string{"--pack-cpus", strconv.Itoa(runtime.NumCPU())}, flags...)
	m := &mount{t: t, Daemon: &daemon.Daemon{
		Bin: ckptfsBin, Flags: flags,
		Store: filepath.Join(dir, "store"), Dir: filepath.Join(dir, "mnt"), Log: filepath.Join(dir, "log"),
	}}
	m.must(os.Mkdir(m.Dir, 0o755))
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
		log := m.logText()
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

// modes runs a test on a mount with passthrough, and on one where the daemon serves every read and write.
func modes(t *testing.T, f func(t *testing.T, m *mount), flags ...string) {
	t.Run("passthrough", func(t *testing.T) {
		t.Parallel()
		m := newMount(t, flags...)
		if s := m.status(); s.Mode != "passthrough" {
			t.Skipf("no passthrough here: mode %q: %s", s.Mode, s.ModeReason)
		}
		f(t, m)
	})
	t.Run("served", func(t *testing.T) {
		t.Parallel()
		f(t, newMount(t, append(slices.Clone(flags), "--no-passthrough")...))
	})
}

func (m *mount) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *mount) logText() string {
	b, err := os.ReadFile(m.Log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// path is a name below the mountpoint.
func (m *mount) path(elem ...string) string {
	return filepath.Join(append([]string{m.Dir}, elem...)...)
}

// cli runs a command that has to succeed.
func (m *mount) cli(args ...string) string {
	m.t.Helper()
	out, err := m.CLI(args...)
	m.must(err)
	return out
}

// cliFails runs a command that has to fail, and returns what it said and its exit status.
func (m *mount) cliFails(args ...string) (string, int) {
	m.t.Helper()
	out, err := m.CLI(args...)
	var exit *daemon.ExitError
	if !errors.As(err, &exit) {
		m.t.Fatalf("ckptfs %s succeeded and said: %s", strings.Join(args, " "), out)
	}
	if exit.Code < 0 {
		m.t.Fatalf("it should have failed in order: %v", err)
	}
	return exit.Stderr, exit.Code
}

func (m *mount) json(v any, args ...string) {
	m.t.Helper()
	out := m.cli(args...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		m.t.Fatalf("ckptfs %s: %v in:\n%s", strings.Join(args, " "), err, out)
	}
}

func (m *mount) stats() (s stats) {
	m.t.Helper()
	m.json(&s, "stats", "--json", m.Dir)
	return s
}

func (m *mount) status() (s status) {
	m.t.Helper()
	m.json(&s, "status", "--json", m.Dir)
	return s
}

func (m *mount) show(name string) (f file) {
	m.t.Helper()
	m.json(&f, "show", "--json", m.path(name))
	return f
}

func (m *mount) sync() {
	m.t.Helper()
	m.cli("sync", m.Dir)
}

// evict syncs first: what is not packed cannot go. It checks that the bytes in place went, and gives the kernel time to
// let go of a file that was closed just now.
func (m *mount) evict(names ...string) {
	m.t.Helper()
	m.sync()
	for _, n := range names {
		var said string
		err := daemon.Until(n+" to be evicted", func() bool {
			said, _ = m.cliOutcome("evict", m.path(n))
			return m.show(n).State == packed
		})
		if err != nil {
			m.t.Fatalf("%v; evict said: %s", err, said)
		}
	}
}

func (m *mount) hydrate(names ...string) {
	m.t.Helper()
	for _, n := range names {
		m.cli("hydrate", m.path(n))
		m.wantState(n, both)
	}
}

// wantState checks a file's state, and waits for it: the last step to it may be in the background.
func (m *mount) wantState(name string, states ...string) {
	m.t.Helper()
	var got string
	err := daemon.Within(daemon.Patience/4, "", func() bool {
		got = m.show(name).State
		return slices.Contains(states, got)
	})
	if err != nil {
		m.t.Fatalf("%s is %q, want %q", name, got, states)
	}
}

func (m *mount) kill9() {
	m.t.Helper()
	m.must(m.Kill9())
}

// remount ends in order and starts again.
func (m *mount) remount() {
	m.t.Helper()
	m.must(m.Stop())
	m.must(m.Start())
}

// write makes a file, and its folders.
func (m *mount) write(name string, data []byte) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	m.must(os.WriteFile(m.path(name), data, 0o644))
}

// want checks a file's bytes, by read and by size.
func (m *mount) want(name string, data []byte) {
	m.t.Helper()
	got, err := os.ReadFile(m.path(name))
	m.must(err)
	if !bytes.Equal(got, data) {
		m.t.Fatalf("%s: %s", name, difference(data, got))
	}
	st, err := os.Stat(m.path(name))
	m.must(err)
	if st.Size() != int64(len(data)) {
		m.t.Fatalf("%s: size %d, want %d", name, st.Size(), len(data))
	}
}

// difference tells where two byte strings part.
func difference(want, got []byte) string {
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	return fmt.Sprintf("%d bytes, want %d; they part at %d", len(got), len(want), i)
}

func (m *mount) sum(name string) string {
	m.t.Helper()
	f, err := os.Open(m.path(name))
	m.must(err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	m.must(err)
	return hex.EncodeToString(h.Sum(nil))
}

// sh runs a shell command in the mount's root.
func (m *mount) sh(command string) string {
	m.t.Helper()
	cmd := exec.Command("sh", "-ec", command)
	cmd.Dir = m.Dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// noise is n bytes that do not compress, from a seed.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

const mib = 1 << 20

// cliOutcome runs a command that may fail.
func (m *mount) cliOutcome(args ...string) (said string, code int) {
	m.t.Helper()
	out, err := m.CLI(args...)
	var exit *daemon.ExitError
	if errors.As(err, &exit) {
		return exit.Stderr, exit.Code
	}
	return out, 0
}

// evictAll packs everything and drops every raw copy.
func (m *mount) evictAll() {
	m.t.Helper()
	m.sync()
	var said string
	err := daemon.Until("eviction", func() bool { // the kernel closes in its own time what a program closed
		var code int
		said, code = m.cliOutcome("evict", m.Dir)
		return code == 0
	})
	if err != nil {
		m.t.Fatalf("evict: %s", said)
	}
}

func (m *mount) names(dir string) []string {
	m.t.Helper()
	entries, err := os.ReadDir(m.path(dir))
	m.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

func (m *mount) wantNames(dir string, want ...string) {
	m.t.Helper()
	if got := m.names(dir); !slices.Equal(got, want) {
		m.t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}
