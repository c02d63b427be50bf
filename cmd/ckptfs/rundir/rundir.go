// Package rundir removes steps of a run, in the run's folder of a mount. The run's owner, who may be another
// user than the caller, cannot have anything else removed.
package rundir

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/procs"
)

// Forgotten begins the name of a step that is being removed; 16 hexadecimal digits follow. What an
// interruption leaves is removed by the next forget or retire of that run, and by the next prune.
const Forgotten = ".forgotten-"

// Open opens the folder of a run, a path without symbolic links, on the device of its mount. Steps are
// removed in the folder that was opened: the run's owner could put a link in its place meanwhile.
func Open(dir string, on procs.Device) (*os.Root, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if is := (procs.Device{Major: int(unix.Major(st.Dev)), Minor: int(unix.Minor(st.Dev))}); is != on {
		return nil, &os.PathError{Op: "open", Path: dir, Err: unix.EXDEV}
	}
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// RemoveStep removes a step of a run, a directory or a file: its name first, so that what is left by an
// interruption is no step.
func RemoveStep(run *os.Root, step string) error {
	aside := fmt.Sprintf("%s%016x", Forgotten, rand.Uint64())
	if err := run.Rename(step, aside); err != nil {
		return err
	}
	if err := run.RemoveAll(aside); err != nil {
		return fmt.Errorf("%s is no step any more, and could not be removed whole; the next forget, retire or prune tries again: %w", step, err)
	}
	return nil
}

// RemoveLeft removes what an interrupted RemoveStep left in a run.
func RemoveLeft(run *os.Root) error {
	d, err := run.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), Forgotten)
		if _, bad := strconv.ParseUint(digits, 16, 64); (e.IsDir() || e.Type().IsRegular()) && ok &&
			bad == nil && len(digits) == 16 {
			err = errors.Join(err, run.RemoveAll(e.Name()))
		}
	}
	return err
}

// RemoveLeftBelow is RemoveLeft for all runs of a mount. It passes over links.
func RemoveLeftBelow(mountpoint string, on procs.Device) error {
	all, err := filepath.Glob(filepath.Join(mountpoint, "runs", "*", Forgotten+"*"))
	if err != nil {
		return err
	}
	for _, left := range all {
		run, oerr := Open(filepath.Dir(left), on)
		if errors.Is(oerr, unix.ELOOP) || errors.Is(oerr, unix.EXDEV) {
			continue
		}
		if oerr == nil {
			oerr = RemoveLeft(run)
			run.Close()
		}
		err = errors.Join(err, oerr)
	}
	return err
}
