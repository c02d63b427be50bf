package volume

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

var update = flag.Bool("update", false, "write the stores in testdata again")

// frozenFile is what a frozen store's list says of a file.
type frozenFile struct {
	State  string `json:"state"`
	Size   int64  `json:"size"`
	Mode   uint32 `json:"mode"`
	Mtime  int64  `json:"mtime"`  // ns
	Blake3 string `json:"blake3"` // of the bytes
}

// TestFrozenStores opens stores that an earlier build wrote, as they were closed, as a crash would have left
// them, and without their index: every file is as it was.
//
// Those in testdata/released.txt stay: every version reads what version 1 and those after it wrote. What a
// new format is written as is frozen beside them, by `go test ./fs/volume -run Frozen -update`.
func TestFrozenStores(t *testing.T) {
	if *update {
		for name, freeze := range map[string]func(*testing.T, string){
			"plain": freeze, "related": freezeRelated, "periodic": freezePeriodic, "lowrank": freezeLowRank,
			"recipes": freezeRecipes, "merges": freezeMerges,
		} {
			name = filepath.Join("testdata", fmt.Sprintf("store-v%d-%s", tree.Version, name))
			// what is frozen stays as it is
			if _, err := os.Stat(name + ".json"); errors.Is(err, fs.ErrNotExist) {
				freeze(t, name)
			}
		}
	}
	stores, err := filepath.Glob(filepath.Join("testdata", "store-v*.tar.gz"))
	if err != nil || len(stores) == 0 {
		t.Fatalf("no frozen stores: %v", err)
	}
	for _, path := range stores {
		name := strings.TrimSuffix(path, ".tar.gz")
		list, err := os.ReadFile(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]frozenFile{}
		if err := json.Unmarshal(list, &want); err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			for _, as := range []string{"closed", "crashed", "without an index"} {
				t.Run(as, func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "store")
					thaw(t, path, dir)
					switch as {
					case "crashed":
						replace(t, filepath.Join(dir, "lock"), `"clean":true`, `"clean":false`)
					case "without an index":
						if err := os.Remove(filepath.Join(dir, tree.IndexFile)); err != nil {
							t.Fatal(err)
						}
					}
					r := openRig(t, dir)
					<-r.surveyed
					if as == "closed" {
						for p, f := range want {
							if f.State != "view" {
								r.want(p, f.State)
							}
						}
					}
					r.isFrozen(want)
					// It can be written to, and what is written finds what is there.
					var first string
					for p := range want {
						if first == "" || p < first {
							first = p
						}
					}
					r.write("again", r.read(first))
					r.sync()
					r.evictAll()
					r = r.reopen()
					r.isFrozen(want)
					r.compact(control.CompactOptions{})
					r.prune(now)
					r.evictAll()
					r.isFrozen(want)
					r.sound()
				})
			}
		})
	}
}

func (r *rig) isFrozen(want map[string]frozenFile) {
	r.t.Helper()
	for p, f := range want {
		got := r.read(p)
		a := r.stat(p)
		if h := cas.Sum(got).String(); h != f.Blake3 || a.Size != f.Size || a.Mode != f.Mode ||
			a.Mtime.Nano() != f.Mtime {
			r.t.Errorf("%s: %d bytes (%s), mode %o, mtime %d; want %+v", p, a.Size, h, a.Mode, a.Mtime.Nano(), f)
		}
	}
}

// freeze makes a store with every kind of file and codec, from bytes that compress, and keeps it.
func freeze(t *testing.T, name string) {
	t.Helper()
	r := newRig(t)
	lines := func(n int) []byte {
		var p []byte
		for i := 0; len(p) < n; i++ {
			p = fmt.Appendf(p, "step %d loss %.5f\n", i, 1/float64(i+1))
		}
		return p[:n]
	}
	floats := func(n int, seed float64) []byte {
		var p []byte
		for i := range n / 4 {
			p = binary.LittleEndian.AppendUint32(p,
				math.Float32bits(float32(math.Sin(seed*float64(i*i))*0.05)))
		}
		return p
	}
	sparse := make([]byte, 300<<10)
	copy(sparse[100<<10:], "not only zeros")
	r.mkdir("runs/a/1")
	r.mkdir("runs/a/2")
	r.write("runs/a/1/m.pt", fixture(t, "flat.pt"))
	r.write("runs/a/1/w.safetensors", weights(t, []string{"a", "b", "zeros"}, floats(20<<10, 1), lines(3000), sparse))
	r.evicted()
	r = r.reopen() // another segment
	r.write("runs/a/2/w.safetensors", weights(t, []string{"a", "b", "zeros"}, floats(20<<10, 1), lines(3001), sparse))
	r.write("noise", append(random(10<<10, 1), lines(100<<10)...))
	r.link("noise", "runs/a/2/linked")
	r.write("hidden.pt", fixture(t, "flat.pt"))
	mode, when := uint32(0o440), unix.Timespec{Sec: 1_600_000_000, Nsec: 123_456_789}
	r.setattr("noise", &tree.SetAttr{Mode: &mode, Mtime: &when})
	r.evicted()
	r.write("resident", lines(90<<10))
	r.sync()
	r.write("small", []byte("small"))
	r.write("empty", nil)
	r.write("like a hollow one", append(headerOf(r, "noise"), "..."...))
	r.sync()
	want := map[string]frozenFile{}
	for _, p := range []string{
		"runs/a/1/m.pt", "runs/a/1/m.safetensors", "runs/a/1/w.safetensors", "runs/a/2/w.safetensors", "noise", "runs/a/2/linked",
		"hidden.pt", "resident", "small", "empty", "like a hollow one",
	} {
		a := r.stat(p)
		want[p] = frozenFile{Size: a.Size, Mode: a.Mode, Mtime: a.Mtime.Nano(),
			Blake3: cas.Sum(r.read(p)).String()}
	}
	view := want["runs/a/1/m.safetensors"]
	view.State = "view"
	want["runs/a/1/m.safetensors"] = view
	r.keep(name, want, "runs", "noise", "hidden.pt")
}

// freezeRelated makes a store with chunks that are stored with the help of others: against versions before,
// and as the rounding of masters, in the same file and in another.
func freezeRelated(t *testing.T, name string) {
	t.Helper()
	r := newRig(t)
	r.mkdir("runs")
	want := map[string]frozenFile{}
	save := func(p string, data []byte) { want[p] = r.saveFrozen(p, data) }
	w := singles(1, 6000)
	for i := range 4 {
		save(fmt.Sprintf("runs/%d/m.safetensors", i+1), fileOf(t, tensor{"a.w", "F32", w}))
		for k := 0; k < len(w); k += 4 {
			x := binary.LittleEndian.Uint32(w[k:])
			binary.LittleEndian.PutUint32(w[k:], x+uint32((i+1)*k)%16)
		}
	}
	save("runs/5/m.safetensors", fileOf(t, tensor{"a.w", "BF16", halves(t, w)}, tensor{"master.a.w", "F32", w}))
	save("half/m.safetensors", fileOf(t, tensor{"a.w", "BF16", halves(t, w)}))
	if r.deltas("runs/4/m.safetensors") == 0 || r.rounded("runs/5/m.safetensors") == 0 {
		t.Error("nothing is related")
	}
	r.keep(name, want, "runs", "half")
}

// saveFrozen writes, packs and evicts a file.
func (r *rig) saveFrozen(p string, data []byte) frozenFile {
	r.mkdir(filepath.Dir(p))
	r.write(p, data)
	r.packOut(p)
	a := r.stat(p)
	return frozenFile{Size: a.Size, Mode: a.Mode, Mtime: a.Mtime.Nano(), Blake3: cas.Sum(data).String()}
}

// freezePeriodic makes a store with chunks whose bitmaps repeat themselves, alone, against versions before
// and as masters.
func freezePeriodic(t *testing.T, name string) {
	t.Helper()
	r := newRig(t)
	r.mkdir("runs")
	want := map[string]frozenFile{}
	save := func(p string, data []byte) { want[p] = r.saveFrozen(p, data) }
	w := singles(1, 30_000) // kernels of 3 by 3, of which the middle alone was ever used
	for k := 0; k < len(w); k += 4 {
		if k/4%9 != 4 {
			copy(w[k:k+4], []byte{0, 0, 0, 0})
		}
	}
	for i := range 4 {
		save(fmt.Sprintf("runs/%d/m.safetensors", i+1), fileOf(t, tensor{"a.w", "F32", w}))
		for k := 16; k < len(w); k += 36 {
			x := binary.LittleEndian.Uint32(w[k:])
			binary.LittleEndian.PutUint32(w[k:], x+uint32((i+1)*k)%16)
		}
	}
	save("runs/5/m.safetensors", fileOf(t, tensor{"a.w", "BF16", halves(t, w)}, tensor{"master.a.w", "F32", w}))
	if r.deltas("runs/4/m.safetensors") == 0 || r.rounded("runs/5/m.safetensors") == 0 {
		t.Error("nothing is related")
	}
	r.keep(name, want, "runs")
}

// freezeRecipes makes a store with chunks that are computed of others: in single precision, and with rows in
// the order in which GGUF has them.
func freezeRecipes(t *testing.T, name string) {
	t.Helper()
	r := newRig(t)
	const tensors, rows, cols, head = 3, 64, 128, 64
	var whole, wide, turned []byte
	for k := range tensors {
		w := halves(t, singles(uint64(5+k), rows*cols))
		whole = append(whole, w...)
		for i := 0; i < len(w); i += 2 {
			wide = append(wide, 0, 0, w[i], w[i+1])
		}
		for i := range rows {
			turned = append(turned, w[2*cols*(i%2*(head/2)+i/2):][:2*cols]...)
		}
	}
	want := map[string]frozenFile{}
	save := func(p, tensor string, dtype formats.DType, data []byte) {
		var all []safetensors.Entry
		for k := range tensors {
			all = append(all, safetensors.Entry{Name: fmt.Sprintf(tensor, k), DType: dtype,
				Shape: []int64{rows, cols}})
		}
		if p != "model" { // what a quantiser wrote
			all = append(all, safetensors.Entry{Name: "transformer.out.weight", DType: formats.F8E4M3,
				Shape: []int64{16, cols}})
			data = append(data, random(16*cols, 3)...)
		}
		file, err := safetensors.AppendHeader(nil, all, nil)
		if err != nil {
			t.Fatal(err)
		}
		p += ".safetensors"
		want[p] = r.saveFrozen(p, append(file, data...))
	}
	save("model", "model.layers.%d.self_attn.q_proj.weight", formats.BF16, whole)
	save("model-f32", "model.layers.%d.self_attn.q_proj.weight", formats.F32, wide)
	save("model-turned", "blk.%d.attn_q.weight", formats.BF16, turned)
	if n := r.recipesOf(); n != 2*tensors {
		t.Errorf("%d recipes", n)
	}
	r.keep(name, want, "model.safetensors")
}

// freezeLowRank makes a store with chunks that are stored with the help of columns, of each type.
func freezeLowRank(t *testing.T, name string) {
	t.Helper()
	r := newRig(t)
	r.mkdir("runs")
	want := map[string]frozenFile{}
	model := []matrix{{"a.w", "BF16", 256, 160}, {"b.w", "F32", 128, 130}}
	for i := range 3 {
		p := fmt.Sprintf("runs/%d/m.safetensors", i+1)
		want[p] = r.saveFrozen(p, merged(t, uint64(i), model...))
		if n, columns := r.lowRanks(p); i > 0 && (n != len(model) || columns != len(model)) {
			t.Errorf("%s: %d chunks are of low rank, with %d columns", p, n, columns)
		}
	}
	r.keep(name, want, "runs")
}

// keep keeps a store and the list of its files, in which the states are set once those at and below some
// paths were evicted.
func (r *rig) keep(name string, want map[string]frozenFile, evict ...string) {
	t := r.test
	t.Helper()
	r.awaitHydrator() // what was read
	for _, p := range evict {
		if _, err := r.Evict(t.Context(), p, nil); err != nil {
			t.Fatal(err)
		}
	}
	for p, f := range want {
		if f.State != "view" {
			f.State = r.state(p)
			want[p] = f
		}
	}
	r.close()
	list, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+".json", append(list, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	archive(t, r.dir, &out)
	if out.Len() > 200<<10 {
		t.Errorf("the store takes %d bytes", out.Len())
	}
	if err := os.WriteFile(name+".tar.gz", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// headerOf is the header of a hollow file.
func headerOf(r *rig, p string) []byte {
	r.t.Helper()
	f, err := os.Open(r.rawPath(p))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, tree.HeaderSize)
	if _, err := io.ReadFull(f, b); err != nil {
		r.t.Fatal(err)
	}
	return b
}

const paxRecord = "SCHILY.xattr." + tree.XattrName

// archive writes a store as a tar with its records, as `tar --xattrs` does.
func archive(t testing.TB, dir string, to io.Writer) {
	t.Helper()
	z, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	links := map[uint64]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() && !st.IsDir() {
			return nil
		}
		h := &tar.Header{Name: rel, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(),
			Format: tar.FormatPAX, Typeflag: tar.TypeDir}
		if st.IsDir() {
			return w.WriteHeader(h)
		}
		var sys unix.Stat_t
		if err := unix.Lstat(path, &sys); err != nil {
			return err
		}
		if first, ok := links[sys.Ino]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return w.WriteHeader(h)
		}
		links[sys.Ino] = rel
		var rec [tree.RecordSize]byte
		if n, err := unix.Getxattr(path, tree.XattrName, rec[:]); err == nil {
			h.PAXRecords = map[string]string{paxRecord: string(rec[:n])}
		}
		p, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h.Typeflag, h.Size = tar.TypeReg, int64(len(p))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(p)
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
}

// thaw unpacks what archive wrote.
func thaw(t *testing.T, from, dir string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = thawOne(dir, h, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func thawOne(dir string, h *tar.Header, r io.Reader) error {
	path := filepath.Join(dir, h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return os.Mkdir(path, fs.FileMode(h.Mode))
	case tar.TypeLink:
		return os.Link(filepath.Join(dir, h.Linkname), path)
	}
	p, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, p, 0o600); err != nil {
		return err
	}
	if rec := h.PAXRecords[paxRecord]; rec != "" {
		if err := unix.Setxattr(path, tree.XattrName, []byte(rec), 0); err != nil {
			return err
		}
	}
	if err := os.Chmod(path, fs.FileMode(h.Mode)); err != nil {
		return err
	}
	return os.Chtimes(path, h.ModTime, h.ModTime)
}
