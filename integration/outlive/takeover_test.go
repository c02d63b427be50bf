package outlive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestWrittenBesideReaders: after the daemon ended, packed files are written to while programs read them.
func TestWrittenBesideReaders(t *testing.T) {
	for name, next := range map[string]func(m *mounttest.Mount){
		"killed":   func(m *mounttest.Mount) { m.Must(m.KillDaemon()) },
		"upgraded": func(m *mounttest.Mount) { m.Run("upgrade", m.Dir) },
	} {
		t.Run(name, func(t *testing.T) {
			mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) { writtenBeside(t, m, next) })
		})
	}
}

func writtenBeside(t *testing.T, m *mounttest.Mount, next func(*mounttest.Mount)) {
	data := map[string][]byte{}
	for i, name := range []string{"append", "patch", "cut"} {
		data[name] = mounttest.Noise(uint64(i+1), 300_000+i*1_000_001)
		m.Write(name, data[name])
	}
	m.Sync()
	readers := map[string]*os.File{}
	maps := map[string][]byte{}
	for name, was := range data {
		f, err := os.Open(m.Path(name))
		m.Must(err)
		defer f.Close()
		p, err := unix.Mmap(int(f.Fd()), 0, len(was), unix.PROT_READ, unix.MAP_SHARED)
		m.Must(err)
		defer unix.Munmap(p)
		readers[name], maps[name] = f, p
	}
	next(m)
	for round := range 2 {
		f, err := os.OpenFile(m.Path("append"), os.O_WRONLY|os.O_APPEND, 0)
		m.Must(err)
		_, err = f.WriteString("x\n")
		m.Must(errors.Join(err, f.Close()))
		data["append"] = append(data["append"], "x\n"...)

		f, err = os.OpenFile(m.Path("patch"), os.O_RDWR, 0)
		m.Must(err)
		_, err = f.WriteAt([]byte("new"), 100)
		m.Must(errors.Join(err, f.Sync(), f.Close()))
		copy(data["patch"][100:], "new")

		m.Must(os.Truncate(m.Path("cut"), int64(len(data["cut"])-5000)))
		data["cut"] = data["cut"][:len(data["cut"])-5000]
		for name, want := range data {
			m.Want(name, want)
			got := make([]byte, len(want))
			if _, err := readers[name].ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s by a descriptor from before: %v, %s", name, err, mounttest.Difference(want, got))
			}
			if n := min(len(want), len(maps[name])); !bytes.Equal(maps[name][:n], want[:n]) {
				t.Errorf("%s by a mapping from before: %s", name, mounttest.Difference(want[:n], maps[name][:n]))
			}
		}
		if round == 0 {
			m.Sync() // they are packed again
			next(m)
		}
	}
	m.Sync()
	m.Must(m.KillDaemon())
	for name, want := range data {
		m.Want(name, want)
	}
}

// TestWrittenBesideReadersOfTheNext: the same after both processes ended, and a new mount.
func TestWrittenBesideReadersOfTheNext(t *testing.T) {
	m := mounttest.New(t)
	data := mounttest.Noise(1, 300_000)
	m.Write("x", data)
	m.Sync()
	m.Kill()
	m.Run("umount", m.Dir)
	m.Must(m.Start())
	reader, err := os.Open(m.Path("x"))
	m.Must(err)
	defer reader.Close()
	f, err := os.OpenFile(m.Path("x"), os.O_WRONLY|os.O_APPEND, 0)
	m.Must(err)
	_, err = f.WriteString("x")
	m.Must(errors.Join(err, f.Close()))
	m.Want("x", append(data, 'x'))
}

// late has no next daemon serve the mount until back is called.
func late(m *mounttest.Mount) (back func()) {
	m.T.Helper()
	where := filepath.Join(m.Store, "tree")
	m.Must(os.Rename(where, where+".away"))
	_, err := m.StrikeDaemon(syscall.SIGKILL)
	m.Must(err)
	return func() { m.Must(os.Rename(where+".away", where)) }
}

// TestStoreStaysLocked: while daemons fail to take the mount over, nobody else can have the store.
func TestStoreStaysLocked(t *testing.T) {
	m := mounttest.New(t)
	data := mounttest.Noise(1, 200_000)
	m.Write("x", data)
	back := late(m)
	lock, err := os.Open(filepath.Join(m.Store, "lock"))
	m.Must(err)
	defer lock.Close()
	for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(time.Millisecond) {
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
			_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
			t.Errorf("the lock of a store that is mounted: %v, after %v", err, time.Since(began))
			break
		}
	}
	back()
	m.Want("x", data)
	m.Want("x", data)
	m.Must(daemon.Until("the command socket", func() bool {
		_, err := m.CLI("status", m.Dir)
		return err == nil
	}))
}

// TestUmountWaits: a mount that is in use stays, however long the next daemon takes.
func TestUmountWaits(t *testing.T) {
	m := mounttest.New(t)
	data := mounttest.Noise(1, 200_000)
	m.Write("x", data)
	reader, err := os.Open(m.Path("x"))
	m.Must(err)
	defer reader.Close()
	back := late(m)
	type outcome struct {
		said string
		code int
	}
	did, soon := make(chan outcome, 1), make(chan outcome, 1)
	go func() {
		said, code := m.RunOutcome("umount", "--no-wait", m.Dir)
		did <- outcome{said, code}
	}()
	go func() {
		said, code := m.RunOutcome("umount", "--no-wait", "--timeout", "1s", m.Dir)
		soon <- outcome{said, code}
	}()
	time.Sleep(6 * time.Second)
	back()
	if o := <-did; o.code != 4 || !strings.Contains(o.said, "is in use") {
		t.Errorf("umount of a mount in use: %d, %s", o.code, o.said)
	}
	if o := <-soon; o.code != 4 || !strings.Contains(o.said, "the next daemon") {
		t.Errorf("umount --timeout 1s of a mount without a daemon: %d, %s", o.code, o.said)
	}
	got, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("read on: %v", err)
	}
	m.Must(reader.Close())
	m.Run("umount", m.Dir)
	nothingLeft(m)
}

// TestWithoutWhatItCanDo: a daemon that takes a mount over serves it without a log, metrics and a socket for
// commands, and has them once that can be.
func TestWithoutWhatItCanDo(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	m := mounttest.New(t, "--metrics-listen", addr)
	data := mounttest.Noise(1, 200_000)
	m.Write("x", data)
	reader, err := os.Open(m.Path("x"))
	m.Must(err)
	defer reader.Close()

	holder := m.PIDs()[0]
	m.Must(syscall.Kill(holder, syscall.SIGSTOP))
	was, err := m.StrikeDaemon(syscall.SIGKILL)
	m.Must(err)
	taken, err := net.Listen("tcp", addr)
	m.Must(err)
	socket := filepath.Join(m.Store, "control.sock")
	m.Must(os.Remove(socket))
	m.Must(os.MkdirAll(filepath.Join(socket, "full"), 0o700))
	m.Must(os.Rename(m.Log, m.Log+".1"))
	m.Must(os.Mkdir(m.Log, 0o700))
	m.Must(syscall.Kill(holder, syscall.SIGCONT))
	m.Must(daemon.Until("another daemon", func() bool {
		now := m.DaemonPID()
		return now != 0 && now != was && m.Mounted()
	}))
	now := m.DaemonPID()
	time.Sleep(time.Second)
	if m.DaemonPID() != now {
		t.Error("it ended for want of what it can do without")
	}
	m.Want("x", data)
	m.Write("y", data)
	got, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("read on: %v", err)
	}

	m.Must(os.RemoveAll(socket))
	m.Must(os.Remove(m.Log))
	m.Must(taken.Close())
	m.Must(daemon.Until("the command socket", func() bool {
		_, err := m.CLI("status", m.Dir)
		return err == nil
	}))
	m.Must(daemon.Until("metrics", func() bool {
		resp, err := http.Get(fmt.Sprintf("http://%s/metrics", addr))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == 200
	}))
	m.Must(daemon.Until("the log", func() bool {
		b, err := os.ReadFile(m.Log)
		return err == nil && strings.Contains(string(b), "the mount was taken over")
	}))
	if m.DaemonPID() != now {
		t.Error("it is another daemon")
	}
	m.Must(reader.Close())
	m.Run("umount", m.Dir)
	nothingLeft(m)
}
