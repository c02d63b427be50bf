package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"ckptfs/cas/simd"
	"ckptfs/integration/daemon"

	"golang.org/x/sys/unix"
)

// bench is a plain folder and a mounted store beside each other on one filesystem.
type bench struct {
	options
	plain  string // folder of the native side
	daemon *daemon.Daemon
	// syncCost is what `ckptfs sync` takes when there is nothing to do: the start of a process, mostly.
	syncCost time.Duration
}

func newBench(o options) (*bench, error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("%w (make builds it)", err)
	}
	if o.dir, err = os.MkdirTemp(o.dir, "ckptfs-bench-"); err != nil {
		return nil, err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return nil, err
	}
	b := &bench{options: o, plain: filepath.Join(o.dir, "plain")}
	b.daemon = &daemon.Daemon{
		Bin: bin, Store: filepath.Join(o.dir, "store"), Dir: filepath.Join(o.dir, "mnt"),
		Log: filepath.Join(o.dir, "log"),
	}
	err = errors.Join(os.Mkdir(b.plain, 0o755), os.Mkdir(b.daemon.Dir, 0o755), b.mount())
	if err == nil {
		err = b.introduce()
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, b.logTail())
		b.close()
		return nil, err
	}
	return b, nil
}

// introduce prints what is measured on what.
func (b *bench) introduce() error {
	var st unix.Statfs_t
	if err := unix.Statfs(b.plain, &st); err != nil {
		return err
	}
	fsName := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs",
		0x794c7630: "overlayfs"}[st.Type]
	if fsName == "" {
		fsName = fmt.Sprintf("filesystem %#x", st.Type)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	var status struct {
		Mode   string `json:"mode"`
		Reason string `json:"mode_reason"`
	}
	if err := b.json(&status, "status", "--json", b.daemon.Dir); err != nil {
		return err
	}
	var costs sample
	for range 5 {
		start := time.Now()
		if err := b.sync(); err != nil {
			return err
		}
		costs.add(time.Since(start).Seconds())
	}
	b.syncCost = time.Duration(costs.median() * 1e9)
	mode := status.Mode
	if status.Reason != "" {
		mode += " (" + status.Reason + ")"
	}
	fmt.Printf("%d cores, %s, kernel %s, %s; mode %s; files of %s, %d pairs a figure; median (lowest–highest); ratio to the plain folder\n",
		runtime.NumCPU(), simd.Now(), unix.ByteSliceToString(u.Release[:]), fsName, mode, bytesText(b.size),
		b.rounds)
	return nil
}

// mount starts the daemon with these flags beside those of the whole run.
func (b *bench) mount(flags ...string) error {
	b.daemon.Flags = append(flags, b.flags...)
	return b.daemon.Start()
}

func (b *bench) remount(flags ...string) error {
	return errors.Join(b.daemon.Stop(), b.mount(flags...))
}

func (b *bench) close() {
	_ = b.daemon.Clean()
	_ = os.RemoveAll(b.dir)
}

func (b *bench) logTail() string {
	log, _ := os.ReadFile(b.daemon.Log)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return "the daemon's log ends:\n" + strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func (b *bench) sync() error {
	_, err := b.daemon.CLI("sync", b.daemon.Dir)
	return err
}

func (b *bench) json(v any, args ...string) error {
	out, err := b.daemon.CLI(args...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

func (b *bench) pythonRun(program string, args ...string) (string, error) {
	cmd := exec.Command(b.python, append([]string{filepath.Join(b.programs, program)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=scripts/python:"+os.Getenv("PYTHONPATH"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	return string(out), nil
}

// scenarios are the rows that measure adds for each of a program's scenarios, which it lists without
// arguments, but for those that -clients leaves out. Each row is told as it comes.
func (b *bench) scenarios(program string, measure func(name string,
	add func(row []string)) error) (rows [][]string, err error) {
	out, err := b.pythonRun(program)
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal([]byte(out), &names); err != nil {
		return nil, err
	}
	for _, name := range names {
		if len(b.named) > 0 && !slices.ContainsFunc(b.named,
			func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		err := measure(name, func(row []string) {
			rows = append(rows, row)
			fmt.Fprintln(os.Stderr, strings.Join(row, " | "))
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rows, nil
}

// settle waits until the disk has nothing left to write, so that no figure pays for the one before it.
func (b *bench) settle() error {
	d, err := os.Open(b.plain)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// memory is the daemon's resident set now and at its highest, in bytes.
func (b *bench) memory() (now, peak int64) {
	for _, pid := range b.daemon.PIDs() {
		for key, sum := range map[string]*int64{"VmRSS": &now, "VmHWM": &peak} {
			n, _ := daemon.Memory(pid, key) // none of one that ended meanwhile
			*sum += n
		}
	}
	return now, peak
}

// resetPeak starts a new highest value. It needs leave to write to the daemon's /proc; without it the peak is
// that of the daemon's whole life.
func (b *bench) resetPeak() {
	for _, pid := range b.daemon.PIDs() {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

// cool drops a file's pages from the kernel's cache.
func cool(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// coolStore drops what the kernel caches of the store's segments and of the local copies.
func (b *bench) coolStore() error {
	for _, sub := range []string{"segments", "tree"} {
		err := filepath.WalkDir(filepath.Join(b.daemon.Store, sub), func(path string, d os.DirEntry,
			err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			return cool(path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
