package ocdbt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// database is the files of one, by their paths.
type database map[string][]byte

func load(t testing.TB, dir string) database {
	t.Helper()
	db := database{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err == nil {
			db[rel], err = os.ReadFile(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (db database) read(path string, off, n, limit int64) ([]byte, error) {
	p, ok := db[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if n < 0 {
		off, n = 0, int64(len(p))
	}
	if n > limit || off > int64(len(p)) || n > int64(len(p))-off {
		return nil, fmt.Errorf("%w: %s: bytes %d+%d of %d", formats.ErrNotFormat, path, off, n, len(p))
	}
	return p[off : off+n], nil
}

func (db database) keys() (keys []string, values map[string]string, err error) {
	values = map[string]string{}
	err = Each(db.read, func(key string, value *Value) error {
		v, err := value.Read()
		keys, values[key] = append(keys, key), string(v)
		return err
	})
	return keys, values, err
}

func TestKeys(t *testing.T) {
	keys, values, err := load(t, "../testdata/orbax/ocdbt/state").keys()
	want := []string{
		"a/b/.zarray", "a/b/0", "params.counts.0/.zarray", "params.counts.0/0", "params.counts.1/.zarray",
		"params.counts.1/0", "params.layer.0.bias/.zarray", "params.layer.0.bias/0",
		"params.layer.0.kernel/.zarray", "params.layer.0.kernel/0.0", "step/.zarray", "step/0",
	}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("%q, %v", keys, err)
	}
	if v := values["step/.zarray"]; v == "" || v[0] != '{' {
		t.Errorf("%q", v)
	}
}

// TestLevels: inner nodes, and values that are in another place than their keys.
func TestLevels(t *testing.T) {
	keys, values, err := load(t, "../testdata/orbax/wide").keys()
	if err != nil || len(keys) != 300 || !slices.IsSorted(keys) {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for i, k := range keys {
		want := fmt.Sprintf(`{"shape":[%d],"dtype":"<f4"%s}`, i, bytes.Repeat([]byte(" "), i%9))
		if k != fmt.Sprintf("params.layer%03d.w/.zarray", i) || values[k] != want {
			t.Fatalf("%q: %q, want %q", k, values[k], want)
		}
	}
}

// sealed sets the length and the checksum of a manifest or node right.
func sealed(p []byte) []byte {
	binary.LittleEndian.PutUint64(p[4:], uint64(len(p)))
	end := len(p) - 4
	binary.LittleEndian.PutUint32(p[end:], crc32.Checksum(p[:end], crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// TestDamage: no byte of a database can be changed unnoticed, and one that is changed with its checksum does
// no harm.
func TestDamage(t *testing.T) {
	for _, dir := range []string{"wide", "ocdbt/state"} {
		db := load(t, "../testdata/orbax/"+dir)
		whole := db["manifest.ocdbt"]
		for i := range whole {
			db["manifest.ocdbt"] = bytes.Clone(whole)
			db["manifest.ocdbt"][i] ^= 1 << (i % 8)
			if _, _, err := db.keys(); !errors.Is(err, formats.ErrNotFormat) {
				t.Errorf("%s: byte %d: %v", dir, i, err)
			}
			if i >= headSize && i < len(whole)-4 {
				sealed(db["manifest.ocdbt"])
				_, _, _ = db.keys()
			}
		}
		db["manifest.ocdbt"] = whole
	}
}

func FuzzNode(f *testing.F) {
	w := load(f, "../testdata/orbax/wide")
	f.Add(w["manifest.ocdbt"][headSize:len(w["manifest.ocdbt"])-4],
		[]byte{0, 1, 1, 0, 'd', 1, 0, 1, 'k', 1, 0, 'v'}, true)
	f.Add([]byte("0123456789abcdef\x00\x80\x08\x80\xc2\xd7\x2f\x04\x00\x01\x03\x00d/x\x01\x01\x01\x00\x00\x1e\x00\x00\x0012345678\x00"),
		[]byte{1, 1, 3, 0, 'd', '/', 'y', 1, 1, 1, 'k', 0, 0, 30, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, manifest, node []byte, leaf bool) {
		wrap := func(magic uint32, body []byte) []byte {
			p := binary.BigEndian.AppendUint32(nil, magic)
			p = append(p, make([]byte, 10)...)
			return sealed(append(append(p, body...), 0, 0, 0, 0))
		}
		db := database{"manifest.ocdbt": wrap(manifestMagic, manifest)}
		read := func(path string, off, n, limit int64) ([]byte, error) {
			if path == "manifest.ocdbt" {
				return db.read(path, off, n, limit)
			}
			return wrap(nodeMagic, node), nil
		}
		fixture.Within(t, fixture.Bound{Fixed: 256 << 20, PerByte: 1 << 10}, len(manifest)+len(node), func() {
			err := Each(read, func(key string, value *Value) error {
				_, err := value.Read()
				return err
			})
			if err != nil && !errors.Is(err, formats.ErrNotFormat) {
				t.Fatal(err)
			}
		})
	})
}
