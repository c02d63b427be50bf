package volume

import (
	"os"
	"path"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/pack"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
)

const (
	signs     = 4   // of a file by which one that is alike is found
	maxLately = 128 // files whose signs are read after a start
	maxNear   = 32  // packed files that are looked at in a folder
)

// related is what the file at p, of a layout l, may be stored with the help of.
func (v *Volume) related(p string, l *formats.Layout) pack.Related {
	if v.versions == nil {
		return pack.Related{}
	}
	return pack.Related{Before: v.versionBefore(p, l, nil, v.alikeTo), Masters: v.mastersOf(p, l)}
}

// likes finds, by their signs, files whose tensors are alike.
type likes struct{ *lru.Cache[cas.Hash, cas.Hash] }

func newLikes() likes {
	c, _ := lru.New[cas.Hash, cas.Hash](rememberedLikes) // the size is positive
	return likes{c}
}

// note remembers that a manifest has some tensors.
func (l likes) note(tensors []formats.Tensor, h cas.Hash) {
	for _, s := range signsOf(tensors, false) {
		l.Add(s, h)
	}
}

// of lists the manifests that were noted last of tensors of these signs.
func (l likes) of(signs []cas.Hash) (hashes []cas.Hash) {
	for _, s := range signs {
		if h, ok := l.Get(s); ok && !slices.Contains(hashes, h) {
			hashes = append(hashes, h)
		}
	}
	return hashes
}

// signsOf are hashes of the names, types and shapes of tensors, of those the least: two files that have most of their tensors in common
// have some of them in common. Those in half precision count as if they were in single precision when full is set.
func signsOf(tensors []formats.Tensor, full bool) []cas.Hash {
	all := make([]cas.Hash, 0, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		dtype := t.DType
		if full && isHalf(t) {
			dtype = "F32"
		}
		all = append(all, signOf(t.Name, string(dtype), t.Shape))
	}
	slices.SortFunc(all, func(a, b cas.Hash) int { return slices.Compare(a[:], b[:]) })
	all = slices.Compact(all)
	return all[:min(signs, len(all))]
}

func isHalf(t *formats.Tensor) bool {
	return codec.MayBeRounded(codec.Hint{DType: string(t.DType)})
}

// alikeTo lists the manifests that were noted last of files with tensors like these.
func (v *Volume) alikeTo(tensors []formats.Tensor) []cas.Hash {
	v.versions.recalled.Do(v.recall)
	return v.versions.likes.of(signsOf(tensors, false))
}

// recall notes the files that were packed last before the start.
func (v *Volume) recall() {
	for _, h := range v.store.Latest(cas.Manifest, maxLately) {
		m, err := v.asm.Manifest(h)
		if err != nil {
			continue
		}
		for _, s := range signsOf(m.Tensors, false) {
			v.versions.likes.ContainsOrAdd(s, h) // what came later is there already
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
	for _, rel := range v.near(dir) {
		if h, ok := v.versionAt(rel); ok && rel != p {
			add(h)
		}
	}
	if names := strings.Split(p, "/"); len(names) > 4 && names[0] == runsDir {
		for _, rel := range v.near(path.Join(names[:3]...)) {
			if h, ok := v.versionAt(rel); ok {
				add(h)
			}
		}
	}
	v.versions.recalled.Do(v.recall)
	for _, h := range v.versions.likes.of(signsOf(l.Tensors, true)) {
		add(h)
	}
	return ms
}

// near lists paths of files in a folder, some of which may be packed.
func (v *Volume) near(dir string) (rels []string) {
	fd, err := v.openBelow(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	entries, _ := d.ReadDir(maxSiblings)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Size < minRelated {
			continue
		}
		if rels = append(rels, path.Join(dir, e.Name())); len(rels) == maxNear {
			break
		}
	}
	return rels
}

// minRelated is the size of a file that is worth a look.
const minRelated = 4 << 10

// parents lists manifests of what the step of the file at p says it came from: of the same name first.
func (v *Volume) parents(p string) (hashes []cas.Hash) {
	names := strings.Split(p, "/")
	if len(names) < 4 || names[0] != runsDir {
		return nil
	}
	at := path.Join(names[:3]...)
	fd, err := v.openBelow(at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	s := &step{name: names[2], files: []stepFile{{rel: lineageFile}}}
	v.readDeclared(fd, names[1], s)
	for _, said := range append([]string{s.declared.Parent}, s.declared.MergedFrom...) {
		if said == "" {
			continue
		}
		to, err := ledger.Resolve(said, at, v.mountpoint)
		if err != nil {
			continue
		}
		rels := []string{to, path.Join(append([]string{to}, names[3:]...)...)}
		if strings.Count(to, "/") == 2 {
			rels = append(rels, v.near(to)...)
		}
		for _, rel := range rels {
			if h, ok := v.versionAt(rel); ok && !slices.Contains(hashes, h) {
				hashes = append(hashes, h)
			}
		}
	}
	return hashes
}
