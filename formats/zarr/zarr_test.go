package zarr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// readAll reads all elements, in pieces of odd lengths.
func readAll(a *Array, s store) ([]byte, error) {
	r, err := a.Elements(s.open)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []byte
	for {
		p := make([]byte, 1+len(out)%777)
		n, err := r.Read(p)
		out = append(out, p[:n]...)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

func lessMemory(t *testing.T, slab, kept int64) {
	was, before := slabBytes, keptBytes
	slabBytes, keptBytes = slab, kept
	t.Cleanup(func() { slabBytes, keptBytes = was, before })
}

// TestForms: arrays of any shape, however they are cut, are read as they were written, also where slabs are
// small and decoders can't all stay open.
func TestForms(t *testing.T) {
	for _, m := range [][2]int64{{slabBytes, keptBytes}, {64, 1 << 20}, {512, 0}} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			lessMemory(t, m[0], m[1])
			g := rand.New(rand.NewPCG(1, uint64(m[0])))
			for i := range 150 {
				f := form{version: 2 + i%2, codec: []string{"", "zstd", "gzip", "zlib"}[g.IntN(4)],
					sep: []string{".", "/"}[g.IntN(2)], first: g.IntN(2) == 0, crc: g.IntN(2) == 0}
				n := int64(1)
				for range g.IntN(5) {
					d := 1 + g.Int64N(9)
					if g.IntN(40) == 0 {
						d = 0
					}
					f.shape, f.chunk = append(f.shape, d), append(f.chunk, 1+g.Int64N(6))
					n *= d
				}
				if f.version == 3 && g.IntN(3) > 0 {
					f.shard = []int64{}
					for _, c := range f.chunk {
						f.shard = append(f.shard, c*(1+g.Int64N(3)))
					}
				}
				if f.shape == nil {
					f.shape, f.chunk = []int64{}, []int64{}
				}
				elements := make([]uint16, n)
				var want []byte
				for k := range elements {
					if g.IntN(8) > 0 && i%5 > 0 {
						elements[k] = uint16(g.Uint32())
					}
					want = binary.LittleEndian.AppendUint16(want, elements[k])
				}
				a, err := Parse(f.metadata())
				if err != nil || a.Unread() != nil {
					t.Fatalf("%+v: %v, %v", f, err, a.Unread())
				}
				got, err := readAll(a, f.save(t, elements))
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%+v: %d bytes, want %d, %v", f, len(got), len(want), err)
				}
			}
		})
	}
}

// TestLarge: many chunks side by side take no more memory than is stated.
func TestLarge(t *testing.T) {
	const rows, columns, wide = 1 << 10, 1 << 12, 1 << 4
	f := form{version: 2, shape: []int64{rows, columns}, chunk: []int64{rows, wide}, codec: "zstd", sep: "."}
	elements := make([]uint16, rows*columns)
	for i := range elements {
		elements[i] = uint16(i ^ i>>16)
	}
	s := f.save(t, elements)
	a, err := Parse(f.metadata())
	if err != nil {
		t.Fatal(err)
	}
	fixture.Within(t, fixture.Bound{Fixed: uint64(slabBytes + keptBytes + 64<<20)}, 0, func() {
		r, err := a.Elements(s.open)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p := make([]byte, 2*columns)
		for i := range rows {
			if _, err := io.ReadFull(r, p); err != nil {
				t.Fatal(err)
			}
			for k, v := range elements[i*columns:][:columns] {
				if binary.LittleEndian.Uint16(p[2*k:]) != v {
					t.Fatalf("row %d, column %d", i, k)
				}
			}
		}
		if n, err := r.Read(p); n != 0 || err != io.EOF {
			t.Fatal(n, err)
		}
	})
}

// TestUnread: what is not understood of how an array is stored leaves its shape and type.
func TestUnread(t *testing.T) {
	two := func(with string) string {
		return `{"zarr_format":2,"shape":[4,4],"chunks":[2,2],"dtype":"<f4","order":"C","fill_value":null,"filters":null` + with + `}`
	}
	three := func(codecs, with string) string {
		return `{"zarr_format":3,"shape":[4,4],"data_type":"float32","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,2]}},"chunk_key_encoding":{"name":"default"},"codecs":[` + codecs + `]` + with + `}`
	}
	const little = `{"name":"bytes","configuration":{"endian":"little"}}`
	shard := func(chunk, codecs, index, with string) string {
		return three(`{"name":"sharding_indexed","configuration":{"chunk_shape":`+chunk+`,"codecs":[`+codecs+
			`],"index_codecs":[`+index+`]`+with+`}}`, "")
	}
	for what, c := range map[string]struct{ text, want string }{
		"2":           {two(""), ""},
		"3":           {three(little, ""), ""},
		"3 in shards": {shard("[1,2]", little, little, ""), ""},
		"blosc":       {two(`,"compressor":{"id":"blosc"}`), `compressed by "blosc"`},
		"blosc, 3":    {three(little+`,{"name":"blosc"}`, ""), `compressed by "blosc"`},
		"two codecs": {three(little+`,{"name":"zstd"},{"name":"crc32c"}`, ""),
			`codecs "crc32c" after "zstd"`},
		"transposed": {three(`{"name":"transpose","configuration":{"order":[1,0]}},`+little, ""),
			"do not begin with bytes"},
		"no codecs": {three("", ""), "do not begin with bytes"},
		"big-endian": {three(`{"name":"bytes","configuration":{"endian":"big"}}`, ""),
			`"big"-endian`},
		"big-endian, 2": {strings.Replace(two(""), "<f4", ">f4", 1), "type >f4"},
		"column-major":  {strings.Replace(two(""), `"C"`, `"F"`, 1), `order "F"`},
		"filters": {strings.Replace(two(""), `"filters":null`, `"filters":[{"id":"delta"}]`, 1),
			"filters"},
		"a separator": {two(`,"dimension_separator":"_"`), `joined by "_"`},
		"a type":      {strings.Replace(three(little, ""), "float32", "int4", 1), "type int4"},
		"a structure": {strings.Replace(two(""), `"<f4"`, `[["a","<f4"]]`, 1), "type unknown"},
		"another grid": {strings.Replace(three(little, ""), "regular", "rectangular", 1),
			`"rectangular"`},
		"another rank":      {strings.Replace(two(""), "[2,2]", "[2]", 1), "1 dimensions"},
		"chunks of nothing": {strings.Replace(two(""), "[2,2]", "[2,0]", 1), "shape [2 0]"},
		"chunks of less":    {strings.Replace(two(""), "[2,2]", "[-1,2]", 1), "shape [-1 2]"},
		"chunks beyond measure": {strings.Replace(two(""), "[2,2]",
			"[9223372036854775807,9223372036854775807]", 1), "shape [9223372036854775807"},
		"a shard of a fraction": {shard("[2,3]", little, little, ""), "in shards of"},
		"a shard of millions": {strings.Replace(shard("[1,1]", little, little, ""), "[2,2]", "[3000,3000]",
			1), "chunks in a shard"},
		"shards in shards": {shard("[1,1]", `{"name":"sharding_indexed"}`, little, ""),
			"do not begin with bytes"},
		"an odd index": {shard("[1,1]", little, little+`,{"name":"zstd"}`, ""),
			`index by codec "zstd"`},
		"an index elsewhere": {shard("[1,1]", little, little, `,"index_location":"middle"`),
			`an index at "middle"`},
		"transformers": {three(little, `,"storage_transformers":[{}]`), "storage transformers"},
		"another encoding": {strings.Replace(three(little, ""), `"default"`, `"morton"`, 1),
			`encoding "morton"`},
		"another version": {strings.Replace(two(""), `:2,`, `:4,`, 1), "version 4"},
	} {
		a, err := Parse([]byte(c.text))
		if err != nil || fmt.Sprint(a.Shape) != "[4 4]" {
			t.Fatalf("%s: %+v, %v", what, a, err)
		}
		_, err = a.Elements(store{}.open)
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, ErrUnread) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
	for what, text := range map[string]string{
		"no JSON": "{", "a shape": `{"shape":[-1],"dtype":"<f4"}`,
		"a large shape":   `{"shape":[4611686018427387904,4],"dtype":"<f4"}`,
		"many dimensions": `{"shape":[` + strings.Repeat("1,", 64) + `1],"dtype":"<f4"}`,
		"too long":        `{"shape":[]}` + strings.Repeat(" ", MaxMetadata),
	} {
		if a, err := Parse([]byte(text)); !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("%s: %+v, %v", what, a, err)
		}
	}
}

// TestDamage: chunks that are too short, too long, or something else are errors, never other elements.
func TestDamage(t *testing.T) {
	elements := make([]uint16, 60)
	for i := range elements {
		elements[i] = uint16(i + 1)
	}
	for _, codec := range []string{"", "zstd", "gzip", "zlib"} {
		for _, shard := range [][]int64{nil, {10, 12}} {
			f := form{version: 3, shape: []int64{5, 12}, chunk: []int64{5, 6}, shard: shard, codec: codec,
				sep: "/", crc: true}
			key := "c/0/1"
			if shard != nil {
				key = "c/0/0"
			}
			a, err := Parse(f.metadata())
			if err != nil {
				t.Fatal(err)
			}
			s := f.save(t, elements)
			want, err := readAll(a, s)
			if err != nil {
				t.Fatal(err)
			}
			whole := s[key]
			for i := range whole {
				s[key] = whole[:i]
				if got, err := readAll(a, s); !errors.Is(err, formats.ErrNotFormat) {
					t.Errorf("%+v cut to %d: %d bytes, %v", f, i, len(got), err)
				}
				if codec == "" && (shard == nil || i < 120) {
					continue // it has no checksum
				}
				s[key] = bytes.Clone(whole)
				s[key][i] ^= 1 << (i % 8)
				if got, err := readAll(a, s); err == nil && !bytes.Equal(got, want) {
					t.Errorf("%+v with byte %d changed: other elements", f, i)
				}
			}
			if shard == nil {
				if s[key] = append(bytes.Clone(whole), 0); codec != "gzip" && codec != "zlib" {
					if got, err := readAll(a, s); !errors.Is(err, formats.ErrNotFormat) {
						t.Errorf("%+v with a byte more: %d bytes, %v", f, len(got), err)
					}
				}
				s[key] = compress(t, codec, make([]byte, 2*5*6+2))
				if got, err := readAll(a, s); !errors.Is(err, formats.ErrNotFormat) {
					t.Errorf("%+v with an element more: %d bytes, %v", f, len(got), err)
				}
			}
		}
	}
	// An error of reading stays what it is.
	f := form{version: 2, shape: []int64{5}, chunk: []int64{5}, codec: "zstd", sep: "."}
	a, _ := Parse(f.metadata())
	failed := errors.New("failed")
	r, err := a.Elements(func(string) (io.ReaderAt, int64, func(), error) {
		return failing{failed}, 1000,
			func() {}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 10)); !errors.Is(err, failed) {
		t.Error(err)
	}
	// A fill value that is not zero is asked for only where a chunk is not there.
	a, _ = Parse(bytes.Replace(f.metadata(), []byte(`"fill_value":0`), []byte(`"fill_value":1`), 1))
	if got, err := readAll(a, f.save(t, elements[:5])); err != nil || len(got) != 10 {
		t.Error(got, err)
	}
	if _, err := readAll(a, store{}); !errors.Is(err, ErrUnread) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// TestWindow: a frame is not given more memory than its first one's window.
func TestWindow(t *testing.T) {
	frame := func(window int, n int) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1),
			zstd.WithSingleSegment(false))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, zeros{}, int64(n)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for what, c := range map[string]struct {
		p    []byte
		want error
	}{
		"small, then large": {append(frame(1<<10, 1<<20), frame(64<<20, 127<<20)...), formats.ErrNotFormat},
		"too large":         {frame(128<<20, 128<<20), ErrUnread},
	} {
		f := form{version: 2, shape: []int64{64 << 20}, chunk: []int64{64 << 20}, codec: "zstd", sep: "."}
		a, err := Parse(f.metadata())
		if err != nil {
			t.Fatal(err)
		}
		fixture.Within(t, fixture.Bound{Fixed: 64 << 20}, 0, func() {
			r, err := a.Elements(store{"0": c.p}.open)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				r.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func FuzzArray(f *testing.F) {
	seed := form{version: 3, shape: []int64{5, 12}, chunk: []int64{5, 6}, shard: []int64{10, 12},
		codec: "zstd", sep: "/", crc: true}
	f.Add(seed.metadata(), seed.save(f, make([]uint16, 60))["c/0/0"])
	two := form{version: 2, shape: []int64{3}, chunk: []int64{2}, sep: "."}
	f.Add(two.metadata(), []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, metadata, value []byte) {
		fixture.Within(t, fixture.Bound{Fixed: uint64(slabBytes + keptBytes + 192<<20), PerByte: 1 << 10},
			len(metadata)+len(value), func() {
				a, err := Parse(metadata)
				if err != nil {
					if !errors.Is(err, formats.ErrNotFormat) {
						t.Fatal(err)
					}
					return
				}
				r, err := a.Elements(func(key string) (io.ReaderAt, int64, func(), error) {
					return bytes.NewReader(value), int64(len(value)), func() {}, nil
				})
				if err == nil {
					defer r.Close()
					_, err = io.CopyN(io.Discard, r, 1<<16)
				}
				if err != nil && err != io.EOF && !errors.Is(err, ErrUnread) &&
					!errors.Is(err, formats.ErrNotFormat) {
					t.Fatal(err)
				}
			})
	})
}
