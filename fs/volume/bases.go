package volume

import (
	"ckptfs/cas"
	"ckptfs/fs/bases"
	"ckptfs/index/manifest"
)

// openBases finds what files are stored against from now on.
func (v *Volume) openBases() {
	v.bases = bases.New(bases.Options{Store: manifests{v}, Root: v.names.RootFd(), Parents: v.parents})
}

// manifests is the bases.Store of a volume.
type manifests struct{ v *Volume }

func (s manifests) Manifest(h cas.Hash) (*manifest.Manifest, error) { return s.v.asm.Manifest(h) }

func (s manifests) Latest(n int) []cas.Hash { return s.v.store.Latest(cas.Manifest, n) }

// parents lists the paths that the step of the file at p, which may be the step itself, says it came from.
func (v *Volume) parents(p string) []string { return v.steps.Parents(p, v.mountpoint) }
