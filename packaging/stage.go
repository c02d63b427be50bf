package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// stage is what one processor's packages install, as scripts/install puts it below a root.
type stage struct {
	arch    string
	program string
	files   []file
}

// file is one of them.
type file struct {
	path string // below /usr
	mode fs.FileMode
	link string // what a symbolic link names
	data []byte
}

// manual is where manual pages are, which packages compress.
const manual = "share/man/"

// monitoring is where alert rules and the dashboard are.
const monitoring = "share/ckptfs/monitoring"

func (r *release) stage(arch string) (*stage, error) {
	native, err := r.native()
	if err != nil {
		return nil, err
	}
	program, err := r.build(arch)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(r.work, arch)
	err = r.command([]string{
		"CKPTFS=" + program, "NATIVE=" + native, "DESTDIR=" + root, "PREFIX=/usr", "HELPERDIR=/usr/sbin",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10), "TZ=UTC",
	}, "scripts/install")
	if err != nil {
		return nil, err
	}
	s := &stage{arch: arch, program: program}
	usr := filepath.Join(root, "usr")
	return s, filepath.WalkDir(usr, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(usr, path)
		if err != nil {
			return err
		}
		f, err := load(path, rel, d)
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
		return nil
	})
}

// load reads a file that was installed. Its mode does not depend on the umask of who made it.
func load(path, rel string, d fs.DirEntry) (f file, err error) {
	f = file{path: rel, mode: 0o644}
	switch {
	case d.Type() == fs.ModeSymlink:
		f.mode |= fs.ModeSymlink
		f.link, err = os.Readlink(path)
		return f, err
	case !d.Type().IsRegular():
		return f, fmt.Errorf("%s: neither a file nor a link", path)
	case strings.HasPrefix(rel, "bin/"):
		f.mode = 0o755
	}
	if f.data, err = os.ReadFile(path); err != nil || !strings.HasPrefix(rel, manual) {
		return f, err
	}
	f.path += ".gz"
	f.data, err = compress(f.data)
	return f, err
}

// compress is gzip without a name and a time.
func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
