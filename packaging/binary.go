package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// sumsFile has the checksums of all others, as sha256sum reads them.
const sumsFile = "SHA256SUMS"

// name is the name of a file of the release for one processor.
func (r *release) name(s *stage, ending string) string {
	return filepath.Join(r.out, fmt.Sprintf("ckptfs-%s-linux-%s%s", r.version.python, s.arch, ending))
}

func (r *release) binary(s *stage) error {
	b, err := os.ReadFile(s.program)
	if err != nil {
		return err
	}
	return os.WriteFile(r.name(s, ""), b, 0o755)
}

// bom writes what the program says itself that it was built from.
func (r *release) bom(s *stage) error {
	g, err := bin.NewGenerator(s.program, bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.Nop()),
		bin.WithVersionOverride(r.version.python))
	if err != nil {
		return err
	}
	bom, err := g.Generate()
	if err != nil {
		return err
	}
	f, err := os.Create(r.name(s, ".cdx.json"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return f.Close()
}

// sums writes the checksums of all files below a folder.
func sums(dir string) error {
	var b strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), path)
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(b.String()), 0o644)
}
