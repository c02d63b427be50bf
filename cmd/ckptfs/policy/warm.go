package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/linked"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/policy"
)

// warmed is what warm prints.
type warmed struct {
	Files         int     `json:"files"`
	Bytes         int64   `json:"bytes"`
	HydratedFiles int     `json:"hydrated_files"`
	HydratedBytes int64   `json:"hydrated_bytes"`
	Seconds       float64 `json:"seconds"`
}

func warmCmd(s Shell) *cobra.Command {
	var hydrate bool
	cmd := &cobra.Command{
		Use:   "warm PATH…",
		Short: "Get files into memory, before a program loads them",
		Long: `Restores the local copies of the packed files at or below PATH in a mount, and reads all files there once, so that what
loads them next finds them in memory. What a remote has is fetched. It returns when all was read: run it before the
server, as an init container does. Files that do not fit in memory are left where they are read at the speed of the
disk.

With --hydrate=false no local copies are made: packed files are read through the mount, and only memory has their bytes.

It keeps nothing there: programs that need memory push out what is not used. ckptfs pin keeps the local copies.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, paths []string) error {
			out, start := &warmed{}, time.Now()
			for _, path := range paths {
				if err := warm(cmd.Context(), s, path, hydrate, out); err != nil {
					return err
				}
			}
			out.Seconds = time.Since(start).Seconds()
			return s.Show(out, func(w io.Writer) {
				fmt.Fprintf(w, "read %s, %s, in %.1f s", text.Plural(int64(out.Files), "file"), text.Bytes(out.Bytes), out.Seconds)
				if out.HydratedFiles > 0 {
					fmt.Fprintf(w, "; hydrated %s, %s", text.Plural(int64(out.HydratedFiles), "file"),
						text.Bytes(out.HydratedBytes))
				}
				fmt.Fprintln(w)
			})
		},
	}
	cmd.Flags().BoolVar(&hydrate, "hydrate", true, "restore the local copies of packed files first")
	return cmd
}

func warm(ctx context.Context, s Shell, path string, hydrate bool, out *warmed) error {
	var find func(p string) string
	var there found
	var notKept string
	err := s.Look(ctx, path, func(c *control.Client, at *place.Place) (err error) {
		if find = finder(at); find == nil {
			return control.Invalid("%s is in no mount, and memory is warmed for programs that read it in one: `ckptfs mount %s MOUNTPOINT` first",
				path, text.Word(at.Store))
		}
		p, err := c.Policy(ctx, false)
		if err != nil {
			return err
		}
		there.rules = rulesOf(p)
		more, err := linked.Outside(ctx, c, at)
		if err != nil {
			return err
		}
		all := append([]string{at.Path}, more...)
		for _, p := range all {
			if err := there.below(ctx, c, p); err != nil {
				return err
			}
		}
		if !hydrate {
			return nil
		}
		before, err := c.Status(ctx)
		if err != nil {
			return err
		}
		moved := out.HydratedBytes
		update, done := s.Progress("hydrating")
		defer done()
		for _, p := range all {
			m, err := c.Hydrate(ctx, p, update)
			if errors.Is(err, syscall.EROFS) {
				s.Say("%s is mounted read-only: what is packed is read through the mount", path)
				return nil
			}
			if err != nil {
				return err
			}
			out.HydratedFiles += m.Files
			out.HydratedBytes += m.Bytes
		}
		if after, err := c.Status(ctx); err == nil {
			notKept = text.NotKept(before, after, out.HydratedBytes-moved)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if notKept != "" {
		s.Say("%s: %s", path, notKept)
	}
	if there.once > 0 {
		s.Say("not read: %s at or below %s, which the rule %s of the store has leave memory when closed",
			text.Plural(there.once, "file"), path, policy.ReadOnce)
	}
	if free := available(); free > 0 && there.size > free {
		s.Say("%s has %s, and %s of memory are free: what does not fit is read from the disk", path, text.Bytes(there.size),
			text.Bytes(free))
	}
	update, done := s.Progress("reading")
	defer done()
	w := &reading{update: update, all: control.Progress{TotalBytes: there.size, TotalFiles: len(there.files)},
		buf: make([]byte, 8<<20)}
	for _, f := range there.files {
		if err := w.file(ctx, find(f)); err != nil {
			return err
		}
	}
	out.Files += w.all.DoneFiles
	out.Bytes += w.all.DoneBytes
	return nil
}

// finder says where this process finds paths of the place's store, whose mount may be of a folder of it; nil:
// it is not mounted here.
func finder(at *place.Place) func(p string) string {
	if at.Mount != nil {
		return func(p string) string {
			inside := strings.TrimPrefix("/"+p, strings.TrimSuffix(at.Mount.Root, "/"))
			return filepath.Join(at.Mount.Mountpoint, inside)
		}
	}
	if point := place.MountpointOf(at.Store); point != "" {
		return func(p string) string { return filepath.Join(point, p) }
	}
	return nil
}

// found are files that are to be read, relative to the mount's root.
type found struct {
	rules *policy.Policy
	files []string
	size  int64
	once  int64 // others, which leave memory when they are closed
}

func (a *found) add(path string, size int64) {
	if a.rules.Is(policy.ReadOnce, path) {
		a.once++
		return
	}
	a.files, a.size = append(a.files, path), a.size+size
}

// below finds the regular files at or below a path, but for views and virtual files that are not named
// themselves.
func (a *found) below(ctx context.Context, c *control.Client, path string) error {
	e, err := c.Entry(ctx, path)
	if err != nil {
		return err
	}
	if e.Mode&unix.S_IFMT == unix.S_IFREG {
		a.add(path, e.Size)
	}
	if e.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	todo := []string{path}
	for len(todo) > 0 && err == nil {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		err = c.Entries(ctx, dir, func(some []control.Entry) error {
			for i := range some {
				e, at := &some[i], filepath.Join(dir, string(some[i].Name))
				switch kind := e.Mode & unix.S_IFMT; {
				case e.View || at == ".ckptfs":
				case kind == unix.S_IFDIR:
					todo = append(todo, at)
				case kind == unix.S_IFREG:
					a.add(at, e.Size)
				}
			}
			return nil
		})
		if dir != path && errors.Is(err, fs.ErrNotExist) {
			err = nil // it went meanwhile
		}
	}
	return err
}

// reading is the reading of files.
type reading struct {
	update func(control.Progress) // or nil
	all    control.Progress
	buf    []byte
}

// file reads a file from begin to end. One that went is passed over.
func (r *reading) file(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r.all.Current = path
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.Read(r.buf)
		r.all.DoneBytes += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if r.update != nil {
			r.update(r.all)
		}
	}
	r.all.DoneFiles++
	return nil
}

// available is how many bytes of memory programs may have without that others are pushed out to swap; 0: it
// is not known.
func available() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kib int64
	for line := range strings.SplitSeq(string(b), "\n") {
		if n, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 && err == nil {
			return kib << 10
		}
	}
	return 0
}
