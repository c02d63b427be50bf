package tensorflow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

func layout(index []byte, number, shards int, size int64) (*formats.Layout, error) {
	l, err := Layout(bytes.NewReader(index), int64(len(index)), number, shards, size)
	if err == nil {
		err = l.Check(size)
	}
	return l, err
}

const value = "/.ATTRIBUTES/VARIABLE_VALUE"

// TestShards: the tensors of what TensorFlow wrote are found, in the file that has them, with their bytes.
func TestShards(t *testing.T) {
	want := map[string]string{
		"kernel": "F32 [20 30]", "half": "BF16 [5]", "flags": "BOOL [2]", "scalar": "F64 []",
		"empty": "F32 [0 3]",
		// as TensorFlow writes dots and slashes in names
		"layer..1/größe": "I64 [7]", "layer..1/a.Sb": "U8 [2 2]",
	}
	for name, shards := range map[string]int{"one": 1, "several": 7} {
		index := fixture.Read(t, "tensorflow/"+name+".index")
		got := map[string]string{}
		for i := range shards {
			file := fmt.Sprintf("%s.data-%05d-of-%05d", name, i, shards)
			data := fixture.Read(t, "tensorflow/"+file)
			by, number, of, ok := Shard(file)
			if !ok || by != name+".index" || number != i || of != shards {
				t.Fatalf("%s: %s, %d of %d, %v", file, by, number, of, ok)
			}
			l, err := layout(index, number, of, int64(len(data)))
			if err != nil || !l.Partial {
				t.Fatalf("%s: %+v, %v", file, l, err)
			}
			for _, x := range l.Tensors {
				got[x.Name] = fmt.Sprint(x.DType, " ", x.Shape)
				if x.Name == "scalar"+value {
					r := l.Regions[x.Region]
					if v := math.Float64frombits(binary.LittleEndian.Uint64(data[r.Off:])); v != 2.5 ||
						r.Len != 8 {
						t.Errorf("%s: scalar is %v", file, v)
					}
				}
			}
		}
		for n, w := range want {
			if name == "several" && (n == "kernel" || n == "empty") {
				w = "" // in parts, in several files
			}
			if got[n+value] != w {
				t.Errorf("%s: %s is %q, want %q; there are %q", name, n, got[n+value], w,
					slices.Sorted(maps.Keys(got)))
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	index := fixture.Read(t, "tensorflow/one.index")
	size := int64(len(fixture.Read(t, "tensorflow/one.data-00000-of-00001")))
	for name, c := range map[string]struct {
		index          []byte
		number, shards int
		size           int64
	}{
		"a shorter file": {index, 0, 1, 1000},
		"another number": {index, 0, 2, size},
		"an empty index": {nil, 0, 1, size},
		"a cut index":    {index[:len(index)-1], 0, 1, size},
		"the end alone":  {index[len(index)-footerSize:], 0, 1, size},
		"compressed blocks": {bytes.Replace(index, []byte{0, 0, 0, 0, 1, 0, 0, 0, 0},
			[]byte{0, 0, 0, 0, 1, 0, 0, 0, 1}, -1), 0, 1, size},
	} {
		if l, err := layout(c.index, c.number, c.shards, c.size); !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	for i := range index {
		for _, v := range []byte{0, 1, 0x7f, 0xff} {
			p := bytes.Clone(index)
			p[i] = v
			if _, err := layout(p, 0, 1, size); err != nil && !errors.Is(err, formats.ErrNotFormat) {
				t.Errorf("byte %d: %v", i, err)
			}
		}
	}
	if by, _, _, ok := Shard("a.data-00000-of-00001.tempstate123"); !ok || by != "a.index" {
		t.Errorf("while it is written: %q, %v", by, ok)
	}
	for _, name := range []string{"a.data-00001-of-00001", "a.data-0000-of-00001", ".data-00000-of-00001",
		"a.data-00000-of-00001.tmp"} {
		if _, _, _, ok := Shard(name); ok {
			t.Errorf("%s is a data file", name)
		}
	}
}

func FuzzIndex(f *testing.F) {
	for _, p := range fixture.Glob(f, "tensorflow/*.index") {
		f.Add(p, int64(10_000))
	}
	f.Fuzz(func(t *testing.T, p []byte, size int64) {
		size &= 1<<40 - 1
		fixture.Within(t, fixture.Bound{Fixed: 1 << 20, PerByte: 1 << 10}, len(p), func() {
			if _, err := layout(p, 0, 1, size); err != nil && !errors.Is(err, formats.ErrNotFormat) {
				t.Fatal(err)
			}
		})
	})
}
