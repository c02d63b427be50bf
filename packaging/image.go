package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes one archive of an OCI layout: an index of an image for each processor.
func (r *release) image(stages []*stage) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, s := range stages {
		img, err := r.imageOf(s)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: s.arch},
		}})
	}
	dir := filepath.Join(r.work, "image")
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version.tag(),
		"io.containerd.image.name":          "docker.io/library/ckptfs:" + r.version.tag(), // for ctr and docker
	})); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, "ckptfs-"+r.version.python+"-oci.tar"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := &tarWriter{tar.NewWriter(f), r.time}
	layout := os.DirFS(dir)
	err = fs.WalkDir(layout, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || p == ".":
			return err
		case d.IsDir():
			return w.dir(p, 0o755)
		}
		b, err := fs.ReadFile(layout, p)
		if err != nil {
			return err
		}
		return w.file(p, 0o644, b)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

// imageOf is the image for one processor: the program, and the authorities that a remote's certificate may
// come from.
func (r *release) imageOf(s *stage) (v1.Image, error) {
	root, err := r.root(s)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(root)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	base = mutate.ConfigMediaType(base, types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: r.time}, CreatedBy: "make dist",
	}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", s.arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/ckptfs"},
		Cmd:        []string{"--help"},
		Env:        []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":   "ckptfs",
			"org.opencontainers.image.version": r.version.described,
		},
	}
	return mutate.ConfigFile(img, config)
}

// root is the image's files, as tar.
func (r *release) root(s *stage) ([]byte, error) {
	var b bytes.Buffer
	w := &tarWriter{tar.NewWriter(&b), r.time}
	for _, d := range []struct {
		path string
		mode int64
	}{
		{"etc", 0o755}, {"etc/ssl", 0o755}, {"etc/ssl/certs", 0o755}, {"run", 0o755}, {"tmp", 0o1777},
		{"usr", 0o755}, {"usr/bin", 0o755}, {"usr/share", 0o755}, {"usr/share/ckptfs", 0o755},
		{"usr/" + monitoring, 0o755},
	} {
		if err := w.dir(d.path, d.mode); err != nil {
			return nil, err
		}
	}
	program, err := os.ReadFile(s.program)
	if err != nil {
		return nil, err
	}
	all := []file{
		{path: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/nonexistent\n")},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
		{path: "usr/bin/ckptfs", mode: 0o755, data: program},
	}
	for _, f := range s.files {
		if strings.HasPrefix(f.path, monitoring+"/") {
			f.path = "usr/" + f.path
			all = append(all, f)
		}
	}
	for _, f := range all {
		if err := w.file(f.path, int64(f.mode), f.data); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return b.Bytes(), err
}

// authorities are Mozilla's, but for those that are trusted in part, which this format cannot say.
func authorities() []byte {
	var b []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b = append(b, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return b
}

// tarWriter writes entries that depend on nothing but their contents.
type tarWriter struct {
	*tar.Writer
	time time.Time
}

func (w *tarWriter) dir(path string, mode int64) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: mode, ModTime: w.time})
}

func (w *tarWriter) file(path string, mode int64, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode, Size: int64(len(data)), ModTime: w.time}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
