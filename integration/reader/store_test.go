package reader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
	"ckptfs/fs/tree"
	"ckptfs/integration/mounttest"
	"ckptfs/integration/recipe"
)

// file is what is to be the same of a file.
type file struct {
	sum   cas.Hash
	mode  fs.FileMode
	mtime int64 // ns
}

// copyOut has the reader copy a whole store, and returns what it copied.
func copyOut(t *testing.T, store string, flags ...string) map[string]file {
	t.Helper()
	to := filepath.Join(t.TempDir(), "out")
	read(t, append(flags, store, "cp", ".", to)...)
	return filesIn(t, to)
}

// filesIn are the regular files of a folder, by their paths.
func filesIn(t *testing.T, dir string) map[string]file {
	t.Helper()
	all := map[string]file{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			all[name], err = fileAt(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func fileAt(path string) (file, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return file{}, err
	}
	fi, err := os.Stat(path)
	if err != nil {
		return file{}, err
	}
	return file{cas.Sum(p), fi.Mode(), fi.ModTime().UnixNano()}, nil
}

func same(t *testing.T, got, want map[string]file) {
	t.Helper()
	for name, f := range want {
		if g, ok := got[name]; !ok || g != f {
			t.Errorf("%q: read as %v, want %v", name, g, f)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%q: nothing has this name", name)
		}
	}
}

// codecsOf counts the records of a store by codec.
func codecsOf(t *testing.T, store string, counts map[byte]int) {
	t.Helper()
	d, err := disk.OpenFolder(store)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	format, err := tree.ReadFormat(d)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(store, "segments")
	numbers, err := segment.Numbers(disk.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		r, err := segment.Open(disk.OS{}, dir, segment.ID{Store: format.ID, Number: n})
		if err != nil {
			t.Fatal(err)
		}
		unread, err := r.Records(func(rec *segment.Record) error {
			counts[rec.Codec]++
			return nil
		})
		if err != nil || unread != nil || r.Close() != nil {
			t.Fatal(err, unread)
		}
	}
}

// thawed unpacks a frozen store.
func thawed(t *testing.T, archive string) (store string) {
	t.Helper()
	store = t.TempDir()
	tar := exec.CommandContext(t.Context(), "tar", "--xattrs", "--xattrs-include=user.*", "-xzf", archive,
		"-C", store)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return store
}

// TestFrozenStores reads the stores that earlier builds wrote. Every codec is in one of them or in that of
// TestMounted.
func TestFrozenStores(t *testing.T) {
	stores, err := filepath.Glob("../../fs/volume/testdata/store-v*.tar.gz")
	if err != nil || len(stores) == 0 {
		t.Fatalf("no frozen stores: %v", err)
	}
	counts := map[byte]int{}
	for _, archive := range stores {
		list, err := os.ReadFile(strings.TrimSuffix(archive, ".tar.gz") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var files map[string]struct {
			State, Blake3 string
			Mode          uint32
			Mtime         int64
		}
		if err := json.Unmarshal(list, &files); err != nil {
			t.Fatal(err)
		}
		want := map[string]file{}
		for name, f := range files {
			if f.State == "view" {
				continue
			}
			h, err := cas.ParseHash(f.Blake3)
			if err != nil {
				t.Fatal(err)
			}
			want[name] = file{h, fs.FileMode(f.Mode & 0o777), f.Mtime}
		}
		store := thawed(t, archive)
		t.Run(filepath.Base(archive), func(t *testing.T) { same(t, copyOut(t, store), want) })
		codecsOf(t, store, counts)
	}
	if missing := slices.DeleteFunc(known(), func(id byte) bool { return counts[id] > 0 }); len(missing) > 0 {
		t.Errorf("codecs %v are in no frozen store", missing)
	}
}

// TestMounted saves files of all formats and relations, and reads the store as it is after a kill and after
// an end in order, without attributes and without verifying.
func TestMounted(t *testing.T) {
	m := mounttest.New(t)
	m.Must(os.CopyFS(m.Path("formats"), os.DirFS("../../formats/testdata")))
	fill(m)
	m.EvictAll()
	want := map[string]file{}
	for name := range filesIn(t, filepath.Join(m.Store, "tree")) {
		f, err := fileAt(m.Path(name))
		m.Must(err)
		want[name] = f
	}
	m.Kill()
	counts := map[byte]int{}
	if codecsOf(t, m.Store, counts); counts[codec.Recipe] < 5 {
		t.Errorf("%d records are recipes", counts[codec.Recipe])
	}
	same(t, copyOut(t, m.Store), want)
	m.Must(m.Start())
	m.Must(m.Stop())
	same(t, copyOut(t, m.Store, "--no-verify"), want)

	bare := filepath.Join(t.TempDir(), "store")
	m.Sh(fmt.Sprintf("cp -r --preserve=mode,timestamps %s %s", m.Store, bare))
	for name, f := range copyOut(t, bare) {
		if f.sum != want[name].sum {
			t.Errorf("%q of a store without attributes: other bytes", name)
		}
	}
	listed := string(read(t, m.Store, "ls"))
	for name := range want {
		if !strings.Contains(listed, " "+name+"\n") && !strings.Contains(name, "\n") {
			t.Errorf("%q is not listed", name)
		}
	}
	if n := strings.Count(listed, "\n"); n != len(want) {
		t.Errorf("%d files are listed, want %d", n, len(want))
	}
	const one = "runs/d/4/m.safetensors"
	if got := read(t, m.Store, "cat", one); cas.Sum(got) != want[one].sum {
		t.Errorf("cat of %s: other bytes", one)
	}
}

// fill saves versions of a tensor of several chunks, a text that changes, roundings, holes, names and links.
func fill(m *mounttest.Mount) {
	weights := mounttest.Noise(1, 300_000)
	for i := 3; i < len(weights); i += 4 {
		weights[i] = 0x3c | weights[i]&0x81
	}
	for i := range 5 {
		step := fmt.Sprintf("runs/d/%d/", i)
		data, _ := mounttest.SafetensorsOf([]string{"w"}, [][]byte{weights})
		m.Write(step+"m.safetensors", data)
		m.Write(step+"notes.txt", lines(40_000+100*i, uint64(i)))
		m.Sync()
		for k := i; k < len(weights); k += 64 {
			weights[k]++
		}
	}
	// A model and fine-tunes of it, quants and a merge: chunks that are computed of others.
	for i, r := range []recipe.Recipe{{Kind: recipe.Half}, {Kind: recipe.Quant},
		{Kind: recipe.Quant, Step: 1}, {Kind: recipe.Quant, Step: 2}, {Kind: recipe.Half, Step: 1},
		{Kind: recipe.Half, Step: 2}, {Kind: recipe.Merge}} {
		r.Seed, r.Size = 1, 128<<10
		m.Write(fmt.Sprintf("kin/%d", i), r.Bytes())
		m.Sync()
	}
	m.Write("zeros", make([]byte, 3<<20))
	m.Write("holes", append(make([]byte, 2<<20), "the end"...))
	m.Write("empty", nil)
	m.Write("one", []byte{1})
	m.Write("odd\nname \xff", lines(9000, 77))
	m.Must(os.Link(m.Path("holes"), m.Path("linked")))
	m.Must(os.Chmod(m.Path("holes"), 0o640))
	m.Must(os.Symlink("runs/d/4", m.Path("last")))
}

// TestDamaged: of a store with a damaged chunk everything else is read, and of that file nothing is left that
// could be taken for it.
func TestDamaged(t *testing.T) {
	m := mounttest.New(t)
	noise := mounttest.Noise(5, 100_000)
	m.Write("hurt", noise)
	m.Write("sound", mounttest.Noise(6, 100_000))
	m.EvictAll()
	m.Must(m.Stop())
	m.Damage(noise[50_000:50_100])
	to := filepath.Join(t.TempDir(), "out")
	_, said, code := python(t, program, m.Store, "cp", ".", to)
	if code != 1 || !bytes.HasPrefix(said, []byte("hurt: ")) {
		t.Errorf("exit %d: %s", code, said)
	}
	if got := slices.Collect(maps.Keys(filesIn(t, to))); !slices.Equal(got, []string{"sound"}) {
		t.Errorf("copied are %q", got)
	}
	if _, said, code := python(t, program, m.Store, "cat", "hurt"); code != 1 || len(said) == 0 {
		t.Errorf("cat: exit %d: %s", code, said)
	}
	// the manifest speaks of another length
	m.Must(unix.Truncate(filepath.Join(m.Store, "tree", "sound"), 99_999))
	if _, said, code := python(t, program, m.Store, "cat", "sound"); code != 1 || len(said) == 0 {
		t.Errorf("cat of another length: exit %d: %s", code, said)
	}
}

// TestNobodyReadsOn: what reads the reader's output may end before it, and nothing is said of that.
func TestNobodyReadsOn(t *testing.T) {
	store := thawed(t, "../../fs/volume/testdata/store-v4-plain.tar.gz")
	for i := range 2000 { // more than a pipe holds
		name := fmt.Sprintf("%040d", i)
		if err := os.WriteFile(filepath.Join(store, "tree", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", `"$@" | head -1`, "sh", interpreter(t), program, store, "ls")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStaysInside: no path and no link of a store leads the reader out of it, and it writes over nothing.
func TestStaysInside(t *testing.T) {
	store := thawed(t, "../../fs/volume/testdata/store-v4-plain.tar.gz")
	secret := filepath.Join(t.TempDir(), "secret")
	for path, data := range map[string]string{secret: "secret", filepath.Join(store, "tree", "pipe"): ""} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Symlink(secret, filepath.Join(store, "tree", "link")),
		os.Symlink(filepath.Dir(secret), filepath.Join(store, "tree", "folder")),
		os.Remove(filepath.Join(store, "tree", "pipe")),
		unix.Mkfifo(filepath.Join(store, "tree", "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"cat", "link"}, {"cat", "folder/secret"}, {"cat", "../format"}, {"cat", "/../../etc/hostname"},
		{"cat", "pipe"}, {"cat", "runs"}, {"cat", "nothing"},
		{"cp", "folder", filepath.Join(t.TempDir(), "out")},
		{"cp", "small", secret}, {"cp", "small", filepath.Join(store, "tree", "new")},
	} {
		out, said, code := python(t, program, append([]string{store}, args...)...)
		if code != 1 || len(out) > 0 || bytes.Contains(said, []byte("Traceback")) {
			t.Errorf("%q: exit %d: %q: %s", args, code, out, said)
		}
	}
	for at, args := range map[string][]string{
		"is no store of ckptfs": {filepath.Dir(secret), "ls"},
		"runs is a folder":      {store, "cat", "runs"},
		"no store of ckptfs":    {secret, "ls"},
	} {
		if _, said, code := python(t, program, args...); code != 1 || !bytes.Contains(said, []byte(at)) {
			t.Errorf("%q: exit %d: %s", args, code, said)
		}
	}
	if p, err := os.ReadFile(secret); string(p) != "secret" {
		t.Errorf("the file outside: %q, %v", p, err)
	}
}

// Names of one file are copied as that, and nothing is left of a copy but what has its name.
func TestLinks(t *testing.T) {
	m := mounttest.New(t)
	m.Write("a", mounttest.Noise(1, 1<<20))
	m.Must(os.Link(m.Path("a"), m.Path("b")))
	m.EvictAll()
	m.Must(m.Stop())
	to := filepath.Join(t.TempDir(), "out")
	read(t, m.Store, "cp", ".", to)
	a, err := os.Stat(filepath.Join(to, "a"))
	m.Must(err)
	b, err := os.Stat(filepath.Join(to, "b"))
	m.Must(err)
	names, err := os.ReadDir(to)
	m.Must(err)
	if !os.SameFile(a, b) || a.Size() != 1<<20 || len(names) != 2 {
		t.Errorf("%d names, of %d and %d bytes", len(names), a.Size(), b.Size())
	}
}

// A copy is what the file was: its mode to the last bit, its time and attributes, also of folders and links.
func TestCopyKeeps(t *testing.T) {
	m := mounttest.New(t)
	m.Must(os.Mkdir(m.Path("sticky"), 0o755))
	m.Write("sticky/packed", mounttest.Noise(1, 1<<20))
	m.Write("sticky/plain", []byte("x"))
	m.Must(os.Symlink("packed", m.Path("sticky/link")))
	paths := []string{"sticky/packed", "sticky/plain", "sticky/link", "sticky"}
	for i, path := range paths {
		if path == "sticky/link" {
			continue
		}
		m.Must(unix.Setxattr(m.Path(path), "user.tag\xff", []byte("kept\x00"), 0))
		m.Must(unix.Chmod(m.Path(path), []uint32{0o4711, 0o2700, 0, 0o1755}[i]))
	}
	m.EvictAll()
	times := []unix.Timespec{{Sec: 1}, {Sec: 2, Nsec: 3}}
	var want, got [4]unix.Stat_t
	for i, path := range paths {
		m.Must(unix.UtimesNanoAt(unix.AT_FDCWD, m.Path(path), times, unix.AT_SYMLINK_NOFOLLOW))
		m.Must(unix.Lstat(m.Path(path), &want[i]))
	}
	m.Must(m.Stop())
	to := filepath.Join(t.TempDir(), "out")
	read(t, m.Store, "cp", ".", to)
	for i, path := range paths {
		at := filepath.Join(to, path)
		m.Must(unix.Lstat(at, &got[i]))
		if got[i].Mode != want[i].Mode || got[i].Mtim != want[i].Mtim || got[i].Uid != want[i].Uid {
			t.Errorf("%s: mode %o of %v, want %o of %v", path, got[i].Mode, got[i].Mtim, want[i].Mode, want[i].Mtim)
		}
		b := make([]byte, 1<<10)
		n, err := unix.Llistxattr(at, b)
		if has := string(b[:max(n, 0)]); err != nil || path != "sticky/link" && has != "user.tag\xff\x00" {
			t.Errorf("%s: attributes %q, %v", path, has, err)
		}
	}
}
