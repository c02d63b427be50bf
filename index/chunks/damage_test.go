package chunks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

// damage makes an index with entries, closes it, lets f at the file and opens it again.
func damage(t *testing.T, f func(t *testing.T, path string)) (*DB, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	if err := db.Commit(entries(1, 20_000), cas.Watermark{Segment: 9, Off: 8}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	f(t, path)
	return Open(path, opts)
}

func edit(f func(tx *bolt.Tx) error) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		b, err := bolt.Open(path, 0o600, nil)
		if err == nil {
			err = errors.Join(b.Update(f), b.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func overwrite(from, to int64) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		st, _ := f.Stat()
		junk := bytes.Repeat([]byte{0xa5}, int(min(to, st.Size())-from))
		if _, err := f.WriteAt(junk, from); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

func put(key, value []byte) func(t *testing.T, path string) {
	return edit(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(key, value) })
}

func TestPutAside(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, path string){
		"empty": func(t *testing.T, path string) { os.Truncate(path, 0) },
		"short": func(t *testing.T, path string) { os.Truncate(path, 100) },
		"cut":   func(t *testing.T, path string) { os.Truncate(path, 64<<10) },
		"text": func(t *testing.T, path string) {
			os.WriteFile(path, bytes.Repeat([]byte("no index\n"), 9999), 0o600)
		},
		"metas":         overwrite(0, 8192),
		"junk":          overwrite(8192, 1<<40),
		"another store": put(keyStore, make([]byte, 16)),
		"older":         put(keyFormat, append([]byte(formatName), 0, 0, 0, 0)),
		"no format":     put(keyFormat, []byte("something")),
		"bad mark":      put(keyMark, []byte("x")),
		"no chunks":     edit(func(tx *bolt.Tx) error { return tx.DeleteBucket(bucketChunks) }),
	} {
		t.Run(name, func(t *testing.T) {
			db, err := damage(t, f)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if db.Recovered() == "" {
				t.Error("nothing said")
			}
			if !strings.Contains(db.Recovered(), "index.db.corrupt-1") {
				t.Errorf("%q does not name the copy", db.Recovered())
			}
			if m, err := db.Watermark(); err != nil || m != (cas.Watermark{}) {
				t.Errorf("watermark %+v, %v", m, err)
			}
			if _, err := os.Stat(db.path + ".corrupt-1"); err != nil {
				t.Error(err)
			}
			es := entries(1, 10)
			if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
				t.Fatal(err)
			}
			expect(t, db, es)
		})
	}
}

func TestNewer(t *testing.T) {
	var path string
	_, err := damage(t, func(t *testing.T, p string) {
		path = p
		put(keyFormat, append([]byte(formatName), 0, 0, 0, 9))(t, p)
	})
	if !errors.Is(err, cas.ErrNewer) {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	// The file was closed, so its lock is free.
	put(keyFormat, binary.BigEndian.AppendUint32([]byte(formatName), formatVersion))(t, path)
	expect(t, open(t, path), entries(1, 20_000))
}

// Damage met after Open is an error and no crash; the next Open has a new index.
func TestDamageInUse(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, path string){
		"junk": overwrite(8192, 1<<40),
		"cut":  func(t *testing.T, path string) { os.Truncate(path, 64<<10) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			db := open(t, path)
			es := entries(1, 20_000)
			if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
				t.Fatal(err)
			}
			f(t, path)
			bad := 0
			for i := range es {
				var loc [1]cas.Location
				if err := db.Locate([]cas.Hash{es[i].Hash}, loc[:]); err != nil {
					if !errors.Is(err, cas.ErrCorrupt) {
						t.Fatal(err)
					}
					bad++
				}
			}
			if bad == 0 {
				t.Fatal("no error")
			}
			if err := db.Commit(es[:1], cas.Watermark{}); !errors.Is(err, cas.ErrCorrupt) {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open(t, path)
			if m, err := db.Watermark(); err != nil || m != (cas.Watermark{}) {
				t.Errorf("watermark %+v, %v", m, err)
			}
		})
	}
}

func TestCheckFindsDamage(t *testing.T) {
	for name, f := range map[string]func(b *bolt.Bucket, key, blob []byte) error{
		"order": func(b *bolt.Bucket, key, blob []byte) error {
			return b.Put(key, append(blob[recordLen:], blob[:recordLen]...))
		},
		"length": func(b *bolt.Bucket, key, blob []byte) error { return b.Put(key, blob[1:]) },
		"record": func(b *bolt.Bucket, key, blob []byte) error { return b.Put(key, blob[recordLen:]) },
		"location": func(b *bolt.Bucket, key, blob []byte) error {
			clear(blob[14:18])
			return b.Put(key, blob)
		},
		"key": func(b *bolt.Bucket, key, blob []byte) error { return b.Put([]byte("xyz"), blob) },
	} {
		db := newDB(t)
		es := entries(4, 100)
		for i := range es {
			es[i].Hash[0], es[i].Hash[1] = 0, byte(i%3)
		}
		if err := db.Commit(es, cas.Watermark{}); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		err := db.file.update(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketChunks)
			key := []byte{0, 1}
			return f(b, key, bytes.Clone(b.Get(key)))
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Check(); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An index whose damage makes bolt panic can be opened again at once, by this process too: the first opening
// leaves no lock, though its map of the file stays.
func TestDamagedIndexIsUnlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	if err := db.Commit(entries(1, 20_000), cas.Watermark{Segment: 9, Off: 8}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readOnly := opts
	readOnly.ReadOnly = true
	panics := 0
	for page := range min(len(whole)/4096, 8) {
		bad := bytes.Clone(whole)
		bad[page*4096+8] ^= 0xff // the page's kind
		path := filepath.Join(t.TempDir(), "index.db")
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := Open(path, readOnly)
		if err == nil {
			err = errors.Join(db.Check(), db.Close())
		}
		if err != nil && !errors.Is(err, cas.ErrCorrupt) {
			t.Fatalf("page %d: %v", page, err)
		}
		if err == nil {
			continue
		}
		panics++
		for range 2 {
			if db, err = Open(path, opts); err == nil {
				err = errors.Join(db.Check(), db.Close())
			}
			if err != nil && !errors.Is(err, cas.ErrCorrupt) {
				t.Errorf("page %d, opened again: %v", page, err)
			}
		}
	}
	if panics == 0 {
		t.Error("no damage was met")
	}
}

// What a killed process wrote may be in the page cache alone. Where the disk refuses it, the index is built
// again.
func TestRefusedByTheDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	opt := Options{StoreID: opts.StoreID}
	db, err := Open(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	defer func(was func(*os.File) error) { settle = was }(settle)
	settle = func(*os.File) error {
		settle = (*os.File).Sync
		return &os.PathError{Op: "sync", Path: path, Err: syscall.EIO}
	}
	if db, err = Open(path, opt); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if r := db.Recovered(); !strings.Contains(r, "the disk refused") {
		t.Errorf("recovered: %q", r)
	}
}

// A panic of a caller's is no damage of the index, which goes on; a page that cannot be read is.
func TestPanicsOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	defer db.Close()
	if err := db.Commit(entries(1, 20_000), cas.Watermark{Segment: 9, Off: 8}); err != nil {
		t.Fatal(err)
	}
	for name, mistake := range map[string]func(){
		"panic":   func() { panic("locks were taken out of order") },
		"nil":     func() { _ = *(*byte)(nil) },
		"runtime": func() { _ = []byte{}[len(path)] },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: taken for damage", name)
				}
			}()
			err := db.ForEach(0, 0xffff, func(cas.Entry) error { mistake(); return nil })
			t.Errorf("%s: %v", name, err)
		}()
		if err := db.Check(); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(db.file.raw.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	err = db.ForEach(0, 0xffff, func(cas.Entry) error {
		if err := os.Truncate(path, 0); err != nil {
			t.Error(err)
		}
		t.Errorf("read %d, which is not there", page[8])
		return nil
	})
	if !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("cut while it is mapped: %v", err)
	}
}
