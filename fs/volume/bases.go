package volume

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/bases"
	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
)

// openBases finds what files are stored against from now on.
func (v *Volume) openBases() {
	v.bases = bases.New(bases.Options{Store: manifests{v}, Root: v.names.rootFd, Parents: v.parents})
}

// manifests is the bases.Store of a volume.
type manifests struct{ v *Volume }

func (s manifests) Manifest(h cas.Hash) (*manifest.Manifest, error) { return s.v.asm.Manifest(h) }

func (s manifests) Latest(n int) []cas.Hash { return s.v.store.Latest(cas.Manifest, n) }

// parents lists the paths that the step of the file at p, which may be the step itself, says it came from.
func (v *Volume) parents(p string) (all []string) {
	names := strings.Split(p, "/")
	if len(names) < 3 || names[0] != runsDir {
		return nil
	}
	at := path.Join(names[:3]...)
	s := &step{name: names[2], file: len(names) == 3}
	flags := uint64(unix.O_PATH)
	if !s.file {
		flags = unix.O_RDONLY | unix.O_DIRECTORY
		s.files = []stepFile{{rel: lineageFile}}
	}
	fd, err := tree.OpenBelow(v.names.rootFd, at, flags)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	v.readDeclared(fd, names[1], s)
	from := s.from(names[1])
	for _, said := range append([]string{s.declared.Parent}, s.declared.MergedFrom...) {
		if said == "" {
			continue
		}
		if to, err := ledger.Resolve(said, from, v.mountpoint); err == nil {
			all = append(all, to)
		}
	}
	return all
}
