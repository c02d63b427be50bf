package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/segment"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// damage flips a byte of a record's payload in its segment file.
func (r *rig) damage(h cas.Hash) {
	r.t.Helper()
	var loc [1]cas.Location
	if err := r.store.Locate([]cas.Hash{h}, loc[:]); err != nil || loc[0].Segment == 0 {
		r.t.Fatalf("chunk %s: %v, %v", h, loc, err)
	}
	f, err := os.OpenFile(segment.Path(r.at("segments"), loc[0].Segment), os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	off := loc[0].Off + segment.RecordHeaderSize + int64(loc[0].Stored)/2
	if _, err := f.ReadAt(b[:], off); err != nil {
		r.t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], off); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) manifestOf(p string) (cas.Hash, *manifest.Manifest) {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	n.File().Lock()
	h := n.File().StateLocked().Record.Manifest
	n.File().Unlock()
	m, err := r.asm.Manifest(h)
	if err != nil {
		r.t.Fatal(err)
	}
	return h, m
}

// A chunk that is not what was written costs the reads that need it, and says where it struck.
func TestCorruptChunk(t *testing.T) {
	r := newRig(t, hotSize(0))
	a, b := random(600<<10, 1), random(600<<10, 2)
	r.write("m.safetensors", weights(t, []string{"fc.bias", "fc.weight"}, a, b))
	r.write("n.safetensors", weights(t, []string{"fc.bias"}, a))
	want := r.read("m.safetensors")
	r.packOut("m.safetensors")
	r.packOut("n.safetensors")
	r.damage(cas.Sum(b[256<<10 : 512<<10]))
	r = r.reopen(hotSize(0))

	h := r.open("m.safetensors", unix.O_RDONLY)
	defer r.release(h)
	start := int64(len(want) - len(b) + 256<<10) // of the damage
	p := make([]byte, 100<<10)
	_, err := h.Read(p, start+5000)
	wantErr(t, "a read of the damage", err, unix.EIO)
	if !r.log.has("ERROR", "m.safetensors", "fc.weight") {
		t.Errorf("reported: %s", r.log)
	}
	for _, off := range []int64{0, 500 << 10, start - int64(len(p)), start + 256<<10} {
		n, err := h.Read(p, off)
		if err != nil {
			t.Errorf("a read at %d: %v", off, err)
		}
		r.equal("beside the damage", p[:n], want[off:off+int64(n)])
	}
	r.same("n.safetensors", weights(t, []string{"fc.bias"}, a))

	// Opened for writing it would lose its manifest; it keeps it.
	_, err = r.openFile("m.safetensors", unix.O_RDWR)
	wantErr(t, "an open for writing", err, unix.EIO)
	r.want("m.safetensors", packed)
	if _, err := r.Hydrate(context.Background(), "m.safetensors", nil); !errors.Is(err, unix.EIO) {
		t.Errorf("hydrate: %v", err)
	}
	r.hollow("m.safetensors")
	if _, err := r.Stats(context.Background()); err != nil {
		t.Errorf("stats: %v", err)
	}
	if _, err := r.Show(context.Background(), "m.safetensors", nil); err != nil {
		t.Errorf("show: %v", err)
	}

	// When the file is written again, its chunk is stored again, and the file is whole.
	r.write("again", want)
	r.packOut("again")
	r.same("again", want)
	r.same("m.safetensors", want)
}

func TestCorruptManifest(t *testing.T) {
	r := newRig(t)
	want := random(300<<10, 1)
	r.write("f", random(300<<10, 2))
	r.write("g", want)
	r.packOut("f")
	h, _ := r.manifestOf("f")
	r.damage(h)
	r = r.reopen()
	size := r.stat("f").Size
	if size != 300<<10 {
		t.Errorf("size %d", size)
	}
	if _, err := r.openFile("f", unix.O_RDONLY); err == nil {
		t.Error("opened")
	}
	if !r.log.has("ERROR", "path f ") {
		t.Errorf("reported: %s", r.log)
	}
	r.same("g", want)
	s, err := r.Stats(context.Background())
	if err != nil {
		t.Errorf("stats: %v", err)
	} else if s.Files != 2 {
		t.Errorf("%+v", s)
	}
	r.write("f", want) // replacing it is what there is to do
	r.packOut("f")
	r.same("f", want)
}

// To open a file whose record cannot be read is an error; the file is not empty. It may be truncated.
func TestDamagedRecord(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"rubbish": func(t *testing.T, path string) {
			if err := unix.Setxattr(path, "user.ckptfs", make([]byte, 64), 0); err != nil {
				t.Fatal(err)
			}
		},
		"newer": func(t *testing.T, path string) {
			bad := append([]byte{9}, make([]byte, 100)...)
			if err := unix.Setxattr(path, "user.ckptfs", bad, 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("f", []byte("precious"))
			r.write("g", []byte("x"))
			r.sync()
			r.close()
			damage(t, r.at("tree", "f"))
			r = r.reopen()
			if a := r.stat("f"); a.Size != 8 {
				t.Errorf("%+v", a)
			}
			for _, flags := range []uint32{unix.O_RDONLY, unix.O_RDWR} {
				_, err := r.openFile("f", flags)
				wantErr(t, "open", err, unix.EIO)
			}
			if !r.log.has("damaged", "path f ") {
				t.Errorf("reported: %s", r.log)
			}
			size := int64(3)
			n := r.find("f")
			_, err := r.Setattr(n, &tree.SetAttr{Size: &size})
			wantErr(t, "truncate to 3", err, unix.EIO)
			r.forget(n)
			r.same("g", []byte("x"))
			if got := r.listing(""); len(got) != 2 {
				t.Errorf("names: %v", got)
			}
			if _, err := r.Stats(context.Background()); err != nil {
				t.Errorf("stats: %v", err)
			}
			r.rename("f", "h")
			c := r.crashed() // recovery does not mind either
			_, err = c.openFile("h", unix.O_RDONLY)
			wantErr(t, "open", err, unix.EIO)
			c.close()
			r.write("h", []byte("new"))
			r.same("h", []byte("new"))
			r.reopen().same("h", []byte("new"))
		})
	}
}

// onTmpfs puts a small filesystem of its own under a folder of a store that is not open.
func onTmpfs(t *testing.T, dir, size string) (resize func(size string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a filesystem of its own")
	}
	if err := unix.Mount("ckptfs-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return func(size string) {
		t.Helper()
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// No room for segments: what was written stays resident and readable, status says so, and packing goes on
// once there is room.
func TestSegmentsFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := openRig(t, dir)
	r.close()
	resize := onTmpfs(t, filepath.Join(dir, "segments"), "1m")
	r = openRig(t, dir)
	t.Cleanup(r.close) // before the unmount
	want := random(3<<20, 1)
	r.write("f", want)
	err := r.Sync(context.Background(), nil)
	if err == nil || !strings.Contains(err.Error(), "f could not be packed") {
		t.Errorf("sync: %v", err)
	}
	r.want("f", resident)
	r.same("f", want)
	s, err := r.Status(context.Background())
	if err != nil || len(s.Failures) != 1 || s.Failures[0].Path != "f" || s.Failures[0].Attempts < 1 ||
		!strings.Contains(s.Failures[0].Reason, "no space") {
		t.Errorf("%+v, %v", s, err)
	}
	if !r.log.has("ERROR", "path f ", "no space") {
		t.Errorf("reported: %s", r.log)
	}
	r.patch("f", []byte("new"), 0) // goes on being a file
	copy(want, "new")
	r.same("f", want)

	resize("20m")
	r.pack("f")
	r.evictAll()
	r.same("f", want)
	if s, err = r.Status(context.Background()); err != nil || len(s.Failures) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Without room a program's write fails, and what was there stays. Writes succeed again once there is room.
func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	resize := onTmpfs(t, dir, "6m")
	if err := unix.Setxattr(dir, "user.test", []byte("x"), 0); err != nil {
		t.Skipf("tmpfs without attributes: %v", err)
	}
	unix.Removexattr(dir, "user.test")
	r := openRig(t, dir)
	t.Cleanup(r.close)
	kept := random(500<<10, 1)
	r.write("kept", kept)
	r.packOut("kept")
	h := r.open("f", unix.O_WRONLY|unix.O_CREAT)
	data := random(8<<20, 2)
	var off int
	var err error
	for off < len(data) && err == nil {
		var n int
		n, err = h.Write(data[off:min(off+256<<10, len(data))], int64(off))
		off += n
	}
	wantErr(t, "write", err, unix.ENOSPC)
	r.release(h)
	r.same("f", data[:off])
	r.same("kept", kept)
	_, err = r.openFile("kept", unix.O_RDWR)
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("an open for writing: %v", err)
	}
	r.want("kept", r.state("kept"))
	r.same("kept", kept)
	r.Sync(context.Background(), nil)
	r.same("f", data[:off])

	resize("40m")
	r.write("f", data)
	r.pack("f")
	r.same("f", data)
	r.same("kept", kept)
}
