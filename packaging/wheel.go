package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

const pythonPackage = "scripts/python/ckptfs"

// wheelTags are the machines that a wheel fits, as pip names them. A static program asks nothing of the C
// library: of glibc the oldest version with a name, of musl too.
var wheelTags = map[string][]string{
	"amd64": {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"},
	"arm64": {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"},
}

// wheel writes the Python package together with the program, which pip puts beside the interpreter, by the
// format of PEP 427.
func (r *release) wheel(s *stage) error {
	all, err := r.wheelFiles(s)
	if err != nil {
		return err
	}
	tags := wheelTags[s.arch]
	f, err := os.Create(filepath.Join(r.out,
		fmt.Sprintf("ckptfs-%s-py3-none-%s.whl", r.version.python, strings.Join(tags, "."))))
	if err != nil {
		return err
	}
	defer f.Close()
	z := zip.NewWriter(f)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	var record bytes.Buffer
	for _, e := range all {
		sum := sha256.Sum256(e.data)
		hash := base64.RawURLEncoding.EncodeToString(sum[:])
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", e.path, hash, len(e.data))
	}
	info := r.wheelInfo()
	fmt.Fprintf(&record, "%s,,\n", info+"RECORD")
	for _, e := range append(all, file{path: info + "RECORD", mode: 0o644, data: record.Bytes()}) {
		h := &zip.FileHeader{Name: e.path, Method: zip.Deflate, Modified: r.time}
		h.SetMode(e.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

func (r *release) wheelInfo() string { return "ckptfs-" + r.version.python + ".dist-info/" }

// wheelFiles are the files of a wheel, but for the record of them.
func (r *release) wheelFiles(s *stage) ([]file, error) {
	all, err := r.pythonFiles()
	if err != nil {
		return nil, err
	}
	data := "ckptfs-" + r.version.python + ".data/"
	for _, f := range s.files {
		switch {
		case f.path == "bin/ckptfs":
			f.path = data + "scripts/ckptfs"
		case strings.HasPrefix(f.path, "share/"):
			f.path = data + "data/" + f.path
		default: // what needs root: helpers of mount(8), the unit
			continue
		}
		all = append(all, f)
	}
	about, err := r.about(s)
	return append(all, about...), err
}

// pythonFiles are the files of the package, which say the wheel's version.
func (r *release) pythonFiles() ([]file, error) {
	var all []file
	dir := os.DirFS(filepath.Join(r.repository, pythonPackage))
	return all, fs.WalkDir(dir, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "__pycache__":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		b, err := fs.ReadFile(dir, p)
		if err != nil {
			return err
		}
		if p == "__init__.py" {
			b = pythonVersion.ReplaceAll(b, []byte(`__version__ = "`+r.version.python+`"`))
		}
		all = append(all, file{path: path.Join("ckptfs", p), mode: 0o644, data: b})
		return nil
	})
}

// about are the files that describe a wheel to pip.
func (r *release) about(s *stage) ([]file, error) {
	var pyproject struct {
		Project struct {
			Name        string
			Description string
			Python      string              `toml:"requires-python"`
			Extras      map[string][]string `toml:"optional-dependencies"`
			// by their groups, of which each has names and what they stand for
			EntryPoints map[string]map[string]string `toml:"entry-points"`
		}
	}
	if _, err := toml.DecodeFile(filepath.Join(r.repository, "scripts/python/pyproject.toml"), &pyproject); err != nil {
		return nil, err
	}
	p := pyproject.Project
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nRequires-Python: %s\n",
		p.Name, r.version.python, p.Description, p.Python)
	for _, extra := range slices.Sorted(maps.Keys(p.Extras)) {
		metadata += "Provides-Extra: " + extra + "\n"
		for _, need := range p.Extras[extra] {
			metadata += fmt.Sprintf("Requires-Dist: %s; extra == '%s'\n", need, extra)
		}
	}
	var entries strings.Builder
	for _, group := range slices.Sorted(maps.Keys(p.EntryPoints)) {
		fmt.Fprintf(&entries, "[%s]\n", group)
		for _, name := range slices.Sorted(maps.Keys(p.EntryPoints[group])) {
			fmt.Fprintf(&entries, "%s = %s\n", name, p.EntryPoints[group][name])
		}
	}
	wheel := "Wheel-Version: 1.0\nGenerator: ckptfs\nRoot-Is-Purelib: false\n"
	for _, tag := range wheelTags[s.arch] {
		wheel += "Tag: py3-none-" + tag + "\n"
	}
	return []file{
		{path: r.wheelInfo() + "METADATA", mode: 0o644, data: []byte(metadata)},
		{path: r.wheelInfo() + "WHEEL", mode: 0o644, data: []byte(wheel)},
		{path: r.wheelInfo() + "entry_points.txt", mode: 0o644, data: []byte(entries.String())},
	}, nil
}
