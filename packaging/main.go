// Command packaging makes what is published of a release, in one folder (`make dist`):
//
//	ckptfs-VERSION-linux-ARCH             the program, static
//	ckptfs-VERSION-linux-ARCH.cdx.json    what it is made of, as CycloneDX
//	ckptfs_…_ARCH.deb, ckptfs-….ARCH.rpm  packages: what scripts/install installs
//	ckptfs-…-py3-none-….whl               a Python wheel: program, package ckptfs, manual pages, completions
//	ckptfs-VERSION-oci.tar                an image for containers, for both processors, as an OCI layout
//	kubernetes/                           how that is used
//	SHA256SUMS
//
// The same sources give the same bytes, wherever and whenever they are built, with the same Go: all times are
// that of the commit, or SOURCE_DATE_EPOCH.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	var r release
	flag.StringVar(&r.repository, "repository", "..", "the `folder` of the sources")
	flag.StringVar(&r.place, "out", "../dist", "the `folder` that is made, or made again")
	described := flag.String("version", "", "the sources' `version`, as git describe says it")
	flag.Parse()
	if err := run(&r, *described); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func run(r *release, described string) error {
	defer r.clear()
	if err := r.prepare(described); err != nil {
		return err
	}
	var stages []*stage
	for _, arch := range arches {
		s, err := r.stage(arch)
		if err != nil {
			return err
		}
		stages = append(stages, s)
		for _, write := range []func(*stage) error{r.binary, r.bom, r.deb, r.rpm, r.wheel} {
			if err := write(s); err != nil {
				return fmt.Errorf("%s: %w", arch, err)
			}
		}
	}
	if err := r.image(stages); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := os.CopyFS(filepath.Join(r.out, "kubernetes"),
		os.DirFS(filepath.Join(r.repository, "packaging/kubernetes"))); err != nil {
		return err
	}
	return r.publish()
}
