package volume

import (
	"cmp"
	"encoding/binary"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// versions finds, for a file that is to be packed, a version before it to store it against. Nothing hangs on what it finds:
// a manifest that does not match costs a look, and one that was forgotten some bytes. It looks, in this order, at
//
//	the same path      as it was packed or opened for writing last
//	the steps before   the same path with a lower number in one of its names, the closest first: model-100.pt beside
//	                   model-200.pt, checkpoint-100/model.pt beside checkpoint-200/model.pt
//	the parent         that the file's step says it has: what is called as the file is there, or what else is
//	what is alike      a file packed before of whose tensors many have the same names, types and shapes: a run's base, say
//
// After a start the first two are found by the names as they are, and what is alike among the files that were packed last.
type versions struct {
	paths    *lru.Cache[string, cas.Hash]
	likes    likes
	recalled sync.Once
}

const (
	rememberedPaths = 4096
	rememberedLikes = 256 * signs

	maxSiblings = 4096 // names looked at in a directory
	maxSteps    = 2    // of the steps before that are looked at for one name
	maxLevels   = 3    // names of a path that are looked at, from its end
	enoughAlike = 0.5  // share of a file's tensors, in bytes, for which a version is taken without looking further
)

func newVersions() *versions {
	r := &versions{likes: newLikes()}
	r.paths, _ = lru.New[string, cas.Hash](rememberedPaths) // the size is positive
	return r
}

// noteVersion remembers that a file has, or had, a manifest. l is nil when only the path matters.
func (v *Volume) noteVersion(n *Node, h cas.Hash, l *formats.Layout) {
	if v.versions == nil {
		return
	}
	v.versions.paths.Add(v.Path(n), h)
	if l != nil {
		v.versions.likes.note(l.Tensors, h)
	}
}

// versionBefore is the manifest of a version before the one that the file at p has now, by a layout l; nil when there is none.
// not, if not nil, says of a manifest that it is none; what is alike is looked for with alikeTo.
func (v *Volume) versionBefore(p string, l *formats.Layout, not func(cas.Hash) bool, alikeTo func([]formats.Tensor) []cas.Hash) *manifest.Manifest {
	if len(l.Tensors) == 0 && !l.Fine {
		return nil
	}
	var best *manifest.Manifest
	var most float64
	seen := map[cas.Hash]bool{}
	enough := func(h cas.Hash, ok bool) bool {
		if !ok || seen[h] || not != nil && not(h) {
			return false
		}
		seen[h] = true
		m, err := v.asm.Manifest(h)
		if err != nil || m.Format != l.Format && len(l.Tensors) == 0 {
			return false
		}
		if s := alike(m, l); s > most {
			best, most = m, s
		}
		return most >= enoughAlike
	}
	if enough(v.versions.paths.Get(p)) {
		return best
	}
	names := strings.Split(p, "/")
	levels := 0
	for k := len(names) - 1; k >= 0 && levels < maxLevels; k-- {
		if !strings.ContainsAny(names[k], digits) {
			continue
		}
		levels++
		steps := 0
		for _, rel := range v.stepsBefore(names, k) {
			h, ok := v.versionAt(rel)
			if enough(h, ok) {
				return best
			}
			if ok {
				if steps++; steps == maxSteps {
					break
				}
			}
		}
	}
	if len(l.Tensors) == 0 {
		return best
	}
	for _, h := range slices.Concat(v.parents(p), alikeTo(l.Tensors)) {
		if enough(h, true) {
			break
		}
	}
	return best
}

// versionAt is the manifest of the file at a path below the mount's root, without looking through symbolic links.
func (v *Volume) versionAt(rel string) (cas.Hash, bool) {
	if h, ok := v.versions.paths.Get(rel); ok {
		return h, true // it may not be published yet
	}
	fd, err := v.openBelow(rel, unix.O_PATH)
	if err != nil {
		return cas.Hash{}, false
	}
	defer unix.Close(fd)
	var b [tree.RecordSize + 1]byte
	k, err := unix.Getxattr("/proc/self/fd/"+strconv.Itoa(fd), tree.XattrName, b[:])
	if err != nil {
		return cas.Hash{}, false
	}
	rec, err := tree.DecodeRecord(b[:k])
	return rec.Manifest, err == nil && rec.Packed()
}

func (v *Volume) openBelow(rel string, flags uint64) (int, error) {
	return unix.Openat2(v.rootFd, rel, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

const digits = "0123456789"

// stepsBefore lists the paths that differ from names in a lower number in names[k], the closest first, and perhaps in that
// number in what lies below. There may be nothing at them.
func (v *Volume) stepsBefore(names []string, k int) (rels []string) {
	dir, own := path.Join(names[:k]...), names[k]
	if dir == "" {
		dir = "."
	}
	fd, err := v.openBelow(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	siblings, _ := d.Readdirnames(maxSiblings)
	pattern, number := numbersIn(own)
	type step struct {
		name   string
		number []string
	}
	var before []step
	for _, s := range siblings {
		if pat, num := numbersIn(s); pat == pattern && compareNumbers(num, number) < 0 {
			before = append(before, step{s, num})
		}
	}
	slices.SortFunc(before, func(a, b step) int { return compareNumbers(b.number, a.number) })
	rest := path.Join(names[k+1:]...)
	for _, s := range before[:min(len(before), 4*maxSteps)] {
		rels = append(rels, path.Join(dir, s.name, rest))
		other := rest
		for i := range number {
			// Names are anybody's, and may make it longer each time; zero has no digits to look for.
			if number[i] != "" && len(other) < unix.PathMax {
				other = strings.ReplaceAll(other, number[i], cmp.Or(s.number[i], "0"))
			}
		}
		if other != rest && len(other) < unix.PathMax {
			rels = append(rels, path.Join(dir, s.name, other))
		}
	}
	return rels
}

// numbersIn takes a name apart: what is the same for all steps, and the numbers, without leading zeros.
func numbersIn(name string) (pattern string, numbers []string) {
	var p strings.Builder
	for name != "" {
		i := strings.IndexAny(name, digits)
		if i < 0 {
			break
		}
		p.WriteString(name[:i])
		p.WriteByte('0')
		name = name[i:]
		rest := strings.TrimLeft(name, digits)
		numbers = append(numbers, strings.TrimLeft(name[:len(name)-len(rest)], "0"))
		name = rest
	}
	return p.String() + name, numbers
}

// compareNumbers compares two lists of as many decimal numbers, the first of them first.
func compareNumbers(a, b []string) int {
	for i := range a {
		if c := cmp.Or(cmp.Compare(len(a[i]), len(b[i])), cmp.Compare(a[i], b[i])); c != 0 {
			return c
		}
	}
	return 0
}

// signOf is the same for tensors of the same name, type and shape.
func signOf(name, dtype string, shape []int64) cas.Hash {
	var p []byte
	for _, s := range []string{name, dtype} {
		p = binary.AppendUvarint(p, uint64(len(s)))
		p = append(p, s...)
	}
	for _, d := range shape {
		p = binary.AppendVarint(p, d)
	}
	return cas.Sum(p)
}

// alike is the share of l's tensors, in bytes, that m has by name, type and shape; 1 when l has none.
func alike(m *manifest.Manifest, l *formats.Layout) float64 {
	if len(l.Tensors) == 0 {
		return 1
	}
	had := make(map[string]*formats.Tensor, len(m.Tensors))
	for i := range m.Tensors {
		had[m.Tensors[i].Name] = &m.Tensors[i]
	}
	var same, all float64
	for i := range l.Tensors {
		t := &l.Tensors[i]
		n := float64(t.NumBytes())
		all += n
		if was := had[t.Name]; was != nil && was.DType == t.DType && slices.Equal(was.Shape, t.Shape) {
			same += n
		}
	}
	if all <= 0 {
		return 0
	}
	return same / all
}
