package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/segment"
	"ckptfs/fs/tree"
)

// rotting is a small store with every kind of file, closed in order, and what is in it.
type rotting struct {
	t     *testing.T
	dir   string
	files map[string][]byte // by path; views too
	plain map[string]bool   // files whose reads are not checked
	owner map[string][]span // of each file of the store: which ranges are whose
}

// span is a range of bytes and the paths that need it.
type span struct {
	from, to int64
	paths    []string
}

const theView = "runs/a/1/m.safetensors" // of runs/a/1/m.pt

// newRotting makes the store: several sessions, so that there are several segments.
func newRotting(t *testing.T) *rotting {
	s := &rotting{t: t, files: map[string][]byte{}, plain: map[string]bool{}, owner: map[string][]span{}}
	flat := fixture(t, "flat.pt")
	a, b := random(260<<10, 1), random(20<<10, 2) // of two chunks, which takes a list; of one
	r := openRig(t, filepath.Join(inMemory(t), "store"))
	add := func(p string, data []byte) { r.write(p, data); s.files[p] = data }
	r.mkdir("runs/a/1")
	r.mkdir("runs/a/2")
	add("runs/a/1/m.pt", flat)
	s.files[theView] = viewBytes(t, flat)
	add("runs/a/1/list.safetensors", weights(t, []string{"fc.bias", "fc.weight"}, b, a))
	add("base.safetensors", merged(t, 0, matrix{"w", "BF16", 256, 128}))
	r.evicted()
	add("tuned.safetensors", merged(t, 1, matrix{"w", "BF16", 256, 128}))
	r.evicted()
	if n, _ := r.lowRanks("tuned.safetensors"); n != 1 {
		t.Error("nothing is of low rank")
	}
	r = r.reopen()
	// shares chunks with the first session
	add("runs/a/2/same.safetensors", weights(t, []string{"fc.weight"}, a))
	add("evicted", random(80<<10, 3))
	add("text", bytes.Repeat([]byte("step 1 loss 0.25\n"), 5000))
	r.link("evicted", "runs/a/2/linked")
	s.files["runs/a/2/linked"] = s.files["evicted"]
	r.evicted()
	r = r.reopen()
	add("resident", random(66<<10, 4))
	r.sync()
	add("small", random(3000, 5))
	add("tiny", []byte("x"))
	add("empty", nil)
	holes := make([]byte, 90<<10)
	copy(holes[70<<10:], "behind a hole")
	h := r.open("holes", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, holes[70<<10:], 70<<10)
	r.release(h)
	s.files["holes"] = holes
	add("literal", headerOf(r, "evicted"))
	for _, p := range []string{"small", "tiny", "holes", "literal"} {
		s.plain[p] = true
	}
	s.plain["resident"] = true // as long as its cache is believed
	r.sync()
	if err := r.sumAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p := range s.plain {
		if want := p != "resident"; r.recordOf(p).Summed != want {
			t.Fatalf("%s: %+v", p, r.recordOf(p))
		}
	}
	for p := range s.files {
		if !strings.HasSuffix(p, "m.safetensors") {
			r.own(s, p)
		}
	}
	r.close()
	s.dir = r.dir
	return s
}

// inMemory is a folder whose filesystem syncs at no cost, where one can be had.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if unix.Mount("none", dir, "tmpfs", 0, "size=256m") != nil {
		return dir
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Setxattr(dir, "user.probe", []byte("x"), 0); err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // Linux before 6.6
	}
	return dir
}

// evicted packs everything and gives the copies up.
func (r *rig) evicted() {
	r.t.Helper()
	r.sync()
	r.awaitHydrator()
	if _, err := r.Evict(r.test.Context(), "", nil); err != nil {
		r.t.Fatal(err)
	}
}

// own notes which records of the segments p needs; a view needs what its source does.
func (r *rig) own(s *rotting, p string) {
	r.t.Helper()
	paths := []string{p}
	if p == "runs/a/1/m.pt" {
		paths = append(paths, theView)
	}
	inode := filepath.Join(tree.TreeDir, p)
	s.owner[inode] = append(s.owner[inode], span{0, 1 << 40, s.links(paths)})
	if st := r.state(p); st != both && st != packed {
		return
	}
	h, m := r.manifestOf(p)
	hashes := []cas.Hash{h}
	for _, o := range m.Objects {
		spans, err := o.Spans(r.store.Get)
		if err != nil {
			r.t.Fatal(err)
		}
		hashes = append(hashes, o.Digest)
		for _, sp := range spans {
			hashes = append(hashes, sp.Hash)
		}
	}
	locs := make([]cas.Location, len(hashes))
	if err := r.store.Locate(hashes, locs); err != nil {
		r.t.Fatal(err)
	}
	for i, l := range locs {
		links, err := r.store.Bases(hashes[i], l)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, b := range links {
			locs = append(locs, b.Loc)
		}
	}
	for _, l := range locs {
		file := filepath.Join(tree.SegmentsDir, segment.Name(l.Segment))
		s.owner[file] = append(s.owner[file],
			span{l.Off, l.Off + segment.Size(int(l.Stored)), s.links(paths)})
	}
}

// links adds the other names of the same files.
func (s *rotting) links(paths []string) []string {
	for _, pair := range [][2]string{{"evicted", "runs/a/2/linked"}, {"runs/a/2/linked", "evicted"}} {
		if slices.Contains(paths, pair[0]) && !slices.Contains(paths, pair[1]) {
			return append(paths, pair[1])
		}
	}
	return paths
}

// may are the paths that a damage at off of a file of the store may take with it.
func (s *rotting) may(file string, off int64) []string {
	var paths []string
	for _, sp := range s.owner[file] {
		if sp.from <= off && off < sp.to {
			paths = append(paths, sp.paths...)
		}
	}
	return paths
}

// flip is a bit of a file of the store, or of its record.
type flip struct {
	file  string // relative to the store
	xattr bool
	off   int64
	bit   byte
}

func (f flip) String() string {
	what := ""
	if f.xattr {
		what = "the record of "
	}
	return fmt.Sprintf("bit %d of byte %d of %s%s", f.bit, f.off, what, f.file)
}

// apply flips the bit in the store in dir; applied again it undoes that.
func (f flip) apply(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, f.file)
	if f.xattr {
		var b [tree.RecordSize]byte
		if _, err := unix.Getxattr(path, tree.XattrName, b[:]); err != nil {
			t.Fatal(err)
		}
		b[f.off] ^= 1 << f.bit
		if err := unix.Setxattr(path, tree.XattrName, b[:], 0); err != nil {
			t.Fatal(err)
		}
		return
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var b [1]byte
	if _, err := unix.Pread(fd, b[:], f.off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << f.bit
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, b[:], f.off); err != nil {
		t.Fatal(err)
	}
	// rot moves no times
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{st.Atim, st.Mtim}, 0); err != nil {
		t.Fatal(err)
	}
}

// spot is a file of the store with bytes to flip.
type spot struct {
	file  string
	xattr bool
	size  int64
}

// spots are all of them.
func (s *rotting) spots() []spot {
	s.t.Helper()
	var all []spot
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		if _, err := tree.ReadRecord(path); err == nil {
			all = append(all, spot{rel, true, tree.RecordSize})
		}
		if st.Size() > 0 {
			all = append(all, spot{rel, false, st.Size()})
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// draw draws a flip: any place as likely as another, and in big files beginnings and ends more often than
// what lies between, since that is where what is not payload is.
func draw(g *rand.Rand, places []spot) flip {
	p := places[g.IntN(len(places))]
	off := g.Int64N(p.size)
	switch g.IntN(4) {
	case 0:
		off = g.Int64N(min(p.size, 256))
	case 1:
		off = p.size - 1 - g.Int64N(min(p.size, 600))
	}
	return flip{p.file, p.xattr, off, byte(g.IntN(8))}
}

// outcome counts what became of flips.
type outcome struct{ flips, harmless, detected, refused, checked int }

func (o *outcome) String() string {
	return fmt.Sprintf("%d flips: %d harmless, %d detected by a read, %d by a refusal to open, %d by a check",
		o.flips, o.harmless, o.detected, o.refused, o.checked)
}

// look reads everything, or only what the flip may take with it, and judges it.
func (s *rotting) look(r *rig, f flip, o *outcome, everything bool) {
	s.t.Helper()
	may := s.may(f.file, f.off)
	o.flips++
	detected, silent := false, false
	for p, want := range s.files {
		if !everything && !slices.Contains(may, p) {
			continue
		}
		got, err := r.tryRead(p)
		switch {
		case err != nil && !slices.Contains(may, p):
			s.t.Errorf("%s takes %s with it: %v", f, p, err)
		case err != nil:
			// A file whose record is damaged may have no view.
			if view := p == theView && errors.Is(err, fs.ErrNotExist); !errors.Is(err, unix.EIO) && !view {
				s.t.Errorf("%s: reading %s: %v, want EIO", f, p, err)
			}
			detected = true
		case !bytes.Equal(got, want) && s.plain[p] && slices.Contains(may, p):
			silent = true
		case !bytes.Equal(got, want):
			s.t.Errorf("%s: %s reads as other bytes than were written", f, p)
		}
	}
	switch {
	case silent:
		o.checked++
		if c := r.check(); !slices.ContainsFunc(may, func(p string) bool { return len(about(c, p)) > 0 }) {
			s.t.Errorf("%s: a check of %v finds %+v", f, may, c.Problems)
		}
	case detected:
		o.detected++
	default:
		o.harmless++
	}
}

// guarded runs f, and ends the whole test binary with all stacks if it hangs.
func (s *rotting) guarded(what fmt.Stringer, f func()) {
	watchdog := time.AfterFunc(2*time.Minute, func() { panic("hangs: " + what.String()) })
	defer watchdog.Stop()
	f()
}

// flips is how many positions are tried.
func flips(t *testing.T, n int) int {
	if s := os.Getenv("CKPTFS_ROT"); s != "" {
		times, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n * times
	}
	if testing.Short() || raceDetector {
		return n / 20
	}
	return n
}

// TestRotWhileOpen flips bits of an open store's segments and files.
func TestRotWhileOpen(t *testing.T) {
	t.Parallel()
	newRotting(t).whileOpen(9600)
}

// whileOpen is TestRotWhileOpen of n places.
func (s *rotting) whileOpen(n int) {
	t := s.t
	r := openRig(t, s.dir, hotSize(0), func(o *Options) { o.CacheBytes = 1 }) // nothing is hydrated
	<-r.surveyed
	r.eventually("no local copy is left to be dropped under a flip", func() bool {
		return !s.plain["resident"] || r.state("resident") == packed
	})
	var places []spot
	for _, p := range s.spots() {
		if strings.HasPrefix(p.file, tree.SegmentsDir) ||
			strings.HasPrefix(p.file, tree.TreeDir) && !p.xattr {
			places = append(places, p)
		}
	}
	seed := uint64(time.Now().UnixNano())
	g := rand.New(rand.NewPCG(seed, 1))
	var o outcome
	for i := range flips(t, n) {
		f := draw(g, places)
		s.guarded(f, func() {
			f.apply(t, s.dir)
			s.look(r, f, &o, i%10 == 0)
			f.apply(t, s.dir)
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("seed %d: %s", seed, &o)
	if o.flips > 300 && (o.detected == 0 || o.harmless == 0) {
		t.Error("that cannot be")
	}
	if o.flips > 2000 && o.checked == 0 && len(s.plain) > 0 {
		t.Error("no flip in a file without packed content")
	}
}

// TestRotBeforeOpen flips bits of a closed store, the index and what a start looks at among them, and opens
// it.
func TestRotBeforeOpen(t *testing.T) {
	t.Parallel()
	newRotting(t).beforeOpen(400)
}

// beforeOpen is TestRotBeforeOpen of n places.
func (s *rotting) beforeOpen(n int) {
	t := s.t
	places := s.spots()
	seed := uint64(time.Now().UnixNano())
	g := rand.New(rand.NewPCG(seed, 2))
	var o outcome
	for range flips(t, n) {
		f := draw(g, places)
		s.guarded(f, func() { s.openDamaged(f, &o) })
		if t.Failed() {
			break
		}
	}
	t.Logf("seed %d: %s", seed, &o)
	if o.flips > 300 && (o.detected == 0 || o.harmless == 0 || o.refused == 0) {
		t.Error("that cannot be")
	}
}

// openDamaged opens a copy of the store with a bit flipped.
func (s *rotting) openDamaged(f flip, o *outcome) {
	s.t.Helper()
	dir := filepath.Join(filepath.Dir(s.dir), "copy")
	defer os.RemoveAll(dir)
	copyTree(s.t, s.dir, dir)
	f.apply(s.t, dir)
	log := &logbook{}
	v, err := Open(Options{Dir: dir, HotSize: 1 << 40, CacheBytes: 8 << 20, Log: log.report})
	if err != nil {
		o.flips++
		o.refused++
		if f.file != tree.FormatFile {
			s.t.Errorf("%s: the store does not open: %v", f, err)
		}
		return
	}
	r := &rig{t: s.t, test: s.t, Volume: v, Requests: v.Requests(), dir: dir, log: log,
		me: tree.Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
	<-r.surveyed
	s.look(r, f, o, true)
	r.close()
}

// copyTree copies a store: names, bytes, holes as zeros, times, links and records.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	links := map[uint64]string{}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if d.IsDir() {
			return os.Mkdir(dst, 0o755)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil // a socket
		}
		if first, ok := links[st.Ino]; ok {
			return os.Link(first, dst)
		}
		links[st.Ino] = dst
		p, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(dst, p, fs.FileMode(st.Mode&0o777)); err != nil {
			return err
		}
		var rec [tree.RecordSize]byte
		if n, err := unix.Getxattr(path, tree.XattrName, rec[:]); err == nil {
			if err := unix.Setxattr(dst, tree.XattrName, rec[:n], 0); err != nil {
				return err
			}
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, dst, []unix.Timespec{st.Atim, st.Mtim}, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
}
