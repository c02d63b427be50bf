package volume

import (
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/pack"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
)

const (
	maxLately  = 128 // files whose signs are read after a start
	maxNear    = 32  // packed files that are looked at in a folder for masters
	maxStep    = 256 // files of a step that are looked at
	maxMasters = 8   // files that are alike and may have masters
	maxFolders = 32  // that are looked at in one
)

// related is what the file at p, of a layout l, may be stored with the help of; was are those of which it is the next version.
func (v *Volume) related(p string, l *formats.Layout) (rel pack.Related, was []cas.Hash) {
	if v.versions == nil {
		return rel, nil
	}
	rel, was = v.earlier(p, l, nil, v.alikeTo)
	rel.Masters = v.mastersOf(p, l)
	return rel, was
}

func isHalf(t *formats.Tensor) bool {
	return codec.MayBeRounded(codec.Hint{DType: string(t.DType)})
}

// alikeTo lists the manifests that were noted last of files with tensors of such signs.
func (v *Volume) alikeTo(signs []uint64) []cas.Hash {
	v.versions.recalled.Do(v.recall)
	return v.versions.likes.of(signs)
}

// recall notes the files that were packed last before the start.
func (v *Volume) recall() {
	for _, h := range v.store.Latest(cas.Manifest, maxLately) {
		if m, err := v.asm.Manifest(h); err == nil {
			v.versions.likes.recall(pack.Signs(m.Tensors), h)
		}
	}
}

// mastersOf are files in which the tensors may be of which those of the file at p are the rounding: in its folder, or in the step that it
// belongs to, or alike. Those of its own are known to who packs it.
func (v *Volume) mastersOf(p string, l *formats.Layout) (ms []*manifest.Manifest) {
	if !slices.ContainsFunc(l.Tensors, func(t formats.Tensor) bool { return isHalf(&t) }) {
		return nil
	}
	var seen []cas.Hash
	add := func(h cas.Hash) {
		if slices.Contains(seen, h) {
			return
		}
		seen = append(seen, h)
		m, err := v.asm.Manifest(h)
		if err == nil && slices.ContainsFunc(m.Tensors, func(t formats.Tensor) bool { return t.DType == "F32" }) {
			ms = append(ms, m)
		}
	}
	dir := path.Dir(p)
	for _, rel := range v.near(dir, maxNear) {
		if h, ok := v.versionAt(rel); ok && rel != p {
			add(h)
		}
	}
	if names := strings.Split(p, "/"); len(names) > 4 && names[0] == runsDir {
		for _, rel := range v.near(path.Join(names[:3]...), maxNear) {
			if h, ok := v.versionAt(rel); ok {
				add(h)
			}
		}
	}
	near := len(ms)
	for _, h := range v.alikeTo(pack.Signs(l.Tensors)) {
		if add(h); len(ms) == near+maxMasters {
			break
		}
	}
	return ms
}

// near lists paths of files in a folder, at most n, some of which may be packed.
func (v *Volume) near(dir string, n int) (rels []string) {
	rels, _ = v.listed(dir, n)
	return rels
}

// below lists paths of files in a folder and in those in it, as near does.
func (v *Volume) below(dir string, n int) (rels []string) {
	dirs := []string{dir}
	for i := 0; i < len(dirs) && i < maxFolders && len(rels) < n; i++ {
		files, more := v.listed(dirs[i], n-len(rels))
		rels = append(rels, files...)
		dirs = append(dirs, more...)
	}
	return rels
}

func (v *Volume) listed(dir string, n int) (rels, dirs []string) {
	fd, err := v.openBelow(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, nil
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	entries, _ := d.ReadDir(maxSiblings)
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, path.Join(dir, e.Name()))
		}
		if !e.Type().IsRegular() || len(rels) == n {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Size < minRelated {
			continue
		}
		rels = append(rels, path.Join(dir, e.Name()))
	}
	return rels, dirs
}

// minRelated is the size of a file that is worth a look.
const minRelated = 4 << 10

// parents lists manifests of what the step of the file at p, which may be the step itself, says it came from: of the same name first, then of what else is in
// that step.
func (v *Volume) parents(p string) (hashes []cas.Hash) {
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
	fd, err := v.openBelow(at, flags)
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
		to, err := ledger.Resolve(said, from, v.mountpoint)
		if err != nil {
			continue
		}
		rels := []string{to, path.Join(append([]string{to}, names[3:]...)...)}
		if run, step, _ := stepIn(to); step != "" {
			rels = append(rels, v.below(path.Join(runsDir, run, step), maxStep)...)
		}
		for _, rel := range rels {
			if h, ok := v.versionAt(rel); ok && !slices.Contains(hashes, h) {
				hashes = append(hashes, h)
			}
		}
	}
	return hashes
}
