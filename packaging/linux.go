package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// Where Debian's zsh looks for completions of packages, and where others' does.
const (
	zshDebian = "share/zsh/vendor-completions/"
	zshOthers = "share/zsh/site-functions/"
)

func (r *release) deb(s *stage) error { return r.linux(s, "deb") }
func (r *release) rpm(s *stage) error { return r.linux(s, "rpm") }

// linux writes a package for Debian's or Red Hat's tools.
func (r *release) linux(s *stage, format string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	contents, err := r.contents(s, format)
	if err != nil {
		return err
	}
	reload := filepath.Join(r.repository, "packaging", "reload")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "ckptfs", Arch: s.arch, Platform: "linux",
		Version: r.version.linux, VersionSchema: "none", Release: map[string]string{"rpm": "1"}[format],
		Section: "utils", Priority: "optional", Maintainer: "ckptfs",
		Description: "Filesystem for machine-learning checkpoints\n" +
			"Programs save and load files as always; every tensor is stored once,\ncompressed.",
		MTime:           r.time,
		DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Recommends: []string{"fuse3"}, // for users other than root
			Contents:   contents,
			Scripts:    nfpm.Scripts{PostInstall: reload, PostRemove: reload},
			RPM: nfpm.RPM{
				BuildHost: "ckptfs", Summary: "Filesystem for machine-learning checkpoints", Compression: "zstd",
			},
			Deb: nfpm.Deb{Compression: "gzip"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := packager.Package(info, f); err != nil {
		return err
	}
	return f.Close()
}

// contents are the files of a package: those of the stage, the folder of the unit's configuration, and the
// README.
func (r *release) contents(s *stage, format string) (files.Contents, error) {
	var all files.Contents
	for _, dir := range []string{"/etc/ckptfs", "/usr/share/doc/ckptfs", "/usr/share/ckptfs", "/usr/" + monitoring} {
		all = append(all, &files.Content{
			Destination: dir, Type: files.TypeDir,
			FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time},
		})
	}
	all = append(all, &files.Content{
		Source: filepath.Join(r.repository, "README.md"), Destination: "/usr/share/doc/ckptfs/README.md",
		FileInfo: &files.ContentFileInfo{Mode: 0o644, MTime: r.time},
	})
	for _, f := range s.files {
		path := f.path
		if after, ok := strings.CutPrefix(path, zshOthers); ok && format == "deb" {
			path = zshDebian + after
		}
		c := &files.Content{
			Source: f.link, Destination: "/usr/" + path, Type: files.TypeSymlink,
			FileInfo: &files.ContentFileInfo{Mode: f.mode.Perm(), MTime: r.time},
		}
		if f.mode&fs.ModeSymlink == 0 {
			c.Type = files.TypeFile
			c.Source = filepath.Join(r.work, s.arch+"-packed", f.path)
			if err := put(c.Source, f.data); err != nil {
				return nil, err
			}
		}
		all = append(all, c)
	}
	return all, nil
}

func put(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
