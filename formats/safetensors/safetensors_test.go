package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// file is a safetensors file with the given header and n bytes of data.
func file(header string, n int) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(p, header...), make([]byte, n)...)
}

func parse(p []byte) (*formats.Layout, error) {
	return Parser{}.Parse(bytes.NewReader(p), int64(len(p)))
}

const one = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`

// TestAccepts has headers that the crate takes, though they look wrong.
func TestAccepts(t *testing.T) {
	deep := strings.Repeat("[", maxDepth-2) + strings.Repeat("]", maxDepth-2)
	for _, c := range []struct {
		name, header string
		data         int
		want         string // the tensors
	}{
		{"plain", one, 4, "a U8 [4] 1"},
		{"no tensors", `{}`, 0, ""},
		{"padded with white space", " \t\r\n" + one + " \n\t ", 4, "a U8 [4] 1"},
		{"scalar", `{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4, "a F32 [] 1"},
		{"no elements", `{"a":{"dtype":"F32","shape":[2,0],"data_offsets":[0,0]}}`, 0, "a F32 [2 0] -1"},
		{"empty name", `{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, " U8 [1] 1"},
		{"any order",
			`{"b":{"shape":[1],"data_offsets":[4,5],"dtype":"I8"},"a":{"data_offsets":[0,4],"dtype":"U8","shape":[4]}}`, 5,
			"b I8 [1] 2, a U8 [4] 1"},
		{"array form", `{"a":["U8",[4],[0,4]]}`, 4, "a U8 [4] 1"},
		{"variant form", `{"a":[{"U8":null},[4],[0,4]]}`, 4, "a U8 [4] 1"},
		{"extra fields",
			`{"a":{"x":[1,-2.5e-3,"\u00e9",{"y":null}],"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":true}}`, 4, "a U8 [4] 1"},
		{"the last of one name",
			`{"a":{"dtype":"F64","shape":[9],"data_offsets":[5,6]},"b":["U8",[1],[0,1]],"a":["U8",[4],[1,5]]}`, 5,
			"a U8 [4] 2, b U8 [1] 1"},
		{"names equal after unescaping", `{"\u0061":["U8",[1],[0,1]],"a":["U8",[4],[0,4]]}`, 4, "a U8 [4] 1"},
		{"escapes", `{"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00":["U8",[4],[0,4]]}`, 4,
			"\"\\/\b\f\n\r\té😀 U8 [4] 1"},
		{"metadata", `{"__metadata__":{"k":"v","k":"w"},"a":["U8",[4],[0,4]]}`, 4, "a U8 [4] 1"},
		{"metadata last", `{"a":["U8",[4],[0,4]],"__metadata__":{}}`, 4, "a U8 [4] 1"},
		{"null metadata", `{"__metadata__":null,"a":["U8",[4],[0,4]]}`, 4, "a U8 [4] 1"},
		{"4-bit elements", `{"a":["F4",[2,4],[0,4]]}`, 4, "a F4 [2 4] 1"},
		{"6-bit elements", `{"a":["F6_E2M3",[4],[0,3]]}`, 3, "a F6_E2M3 [4] 1"},
		{"odd bytes before wide elements", `{"a":["BOOL",[3],[0,3]],"b":["F64",[1],[3,11]]}`, 11,
			"a BOOL [3] 1, b F64 [1] 2"},
		{"empty tensors between", `{"a":["U8",[4],[0,4]],"e":["U8",[0],[4,4]],"f":["U8",[0],[0,0]]}`, 4,
			"a U8 [4] 1, e U8 [0] -1, f U8 [0] -1"},
		{"nested 127 deep", `{"a":{"x":` + deep + `,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4,
			"a U8 [4] 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := file(c.header, c.data)
			l, err := parse(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Check(int64(len(p))); err != nil {
				t.Error(err)
			}
			var got []string
			for _, x := range l.Tensors {
				got = append(got, fmt.Sprintf("%s %s %v %d", x.Name, x.DType, x.Shape, x.Region))
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("tensors %q, want %q", s, c.want)
			}
		})
	}
}

// TestRejects breaks each rule once.
func TestRejects(t *testing.T) {
	deep := strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1)
	h := func(header string, n int) []byte { return file(header, n) }
	field := func(s string) []byte { return file(`{"a":{`+s+`}}`, 4) }
	for _, c := range []struct {
		name string
		file []byte
		want string // part of the reason
	}{
		{"7 bytes", make([]byte, 7), "header too small"},
		{"no bytes", nil, "header too small"},
		{"header over the limit", append(binary.LittleEndian.AppendUint64(nil, MaxHeader+1),
			make([]byte, 100)...), "header too large"},
		{"header length of 2^64-1", append(bytes.Repeat([]byte{255}, 8), make([]byte, 100)...),
			"header too large"},
		{"header past the end", append(binary.LittleEndian.AppendUint64(nil, 3), "{}"...),
			"invalid header length"},
		{"no header", h("", 0), "expected '{'"},

		{"not UTF-8", h("{\"\xff\":[\"U8\",[4],[0,4]]}", 4), "not UTF-8"},
		{"a surrogate in UTF-8", h("{\"\xed\xa0\x80\":[\"U8\",[4],[0,4]]}", 4), "not UTF-8"},
		{"NUL padding", h(one+"\x00", 4), "trailing characters"},
		{"byte order mark", h("\ufeff"+one, 4), "no JSON object"},
		{"garbage after", h(one+"x", 4), "trailing characters"},
		{"two objects", h(one+one, 4), "trailing characters"},
		{"vertical tab", h(one+"\v", 4), "trailing characters"},
		{"array", h(`[]`, 0), "no JSON object"},
		{"cut off", h(one[:len(one)-1], 4), "expected ',' or '}'"},
		{"trailing comma", h(`{"a":["U8",[4],[0,4]],}`, 4), "trailing comma"},
		{"leading comma", h(`{,}`, 0), "expected '\"'"},
		{"no comma", h(`{"a":["U8",[4],[0,4]]"b":1}`, 4), "expected ','"},
		{"no colon", h(`{"a" 1}`, 4), "expected ':'"},
		{"comment", h(`{}//`, 0), "trailing characters"},
		{"single quotes", h(`{'a':1}`, 0), "expected '\"'"},
		{"control character in a name", h("{\"\n\":[\"U8\",[4],[0,4]]}", 4), "control character"},
		{"control character after an escape", h("{\"\\n\n\":[\"U8\",[4],[0,4]]}", 4), "control character"},
		{"lone surrogate", h(`{"\ud800":["U8",[4],[0,4]]}`, 4), "lone surrogate"},
		{"two high surrogates", h(`{"\ud800\ud800":["U8",[4],[0,4]]}`, 4), "lone surrogate"},
		{"low surrogate first", h(`{"\udc00\ud800":["U8",[4],[0,4]]}`, 4), "lone surrogate"},
		{"unknown escape", h(`{"\x":["U8",[4],[0,4]]}`, 4), "invalid escape"},
		{"short escape", h(`{"\u12"}`, 4), "invalid escape"},
		{"signed escape", h(`{"\u+123":["U8",[4],[0,4]]}`, 4), "invalid escape"},
		{"string without end", h(`{"abc`, 0), "string without end"},
		{"escape without end", h(`{"abc\`, 0), "string without end"},
		{"nested 128 deep", h(`{"a":{"x":`+deep+`}}`, 4), "recursion limit"},
		{"number out of range in an extra field",
			field(`"x":1e999,"dtype":"U8","shape":[4],"data_offsets":[0,4]`), "out of range"},
		{"leading zero", field(`"x":01`), "invalid number"},
		{"bare minus", field(`"x":-`), "invalid value"},
		{"no digits after the point", field(`"x":1.`), "invalid number"},
		{"no digits in the exponent", field(`"x":1e+`), "invalid number"},
		{"unknown literal", field(`"x":nul`), "expected null"},

		{"metadata twice", h(`{"__metadata__":{},"__metadata__":null}`, 0), "duplicate field __metadata__"},
		{"metadata with a number", h(`{"__metadata__":{"a":1}}`, 0), `expected '"'`},
		{"metadata as a string", h(`{"__metadata__":"a"}`, 0), "expected '{'"},

		{"no dtype", field(`"shape":[4],"data_offsets":[0,4]`), "missing field dtype"},
		{"no shape", field(`"dtype":"U8","data_offsets":[0,4]`), "missing field shape"},
		{"no offsets", field(`"dtype":"U8","shape":[4]`), "missing field data_offsets"},
		{"dtype twice", field(`"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]`),
			"duplicate field dtype"},
		{"unknown dtype", field(`"dtype":"C128","shape":[4],"data_offsets":[0,4]`), "unknown dtype"},
		{"lower-case dtype", field(`"dtype":"u8","shape":[4],"data_offsets":[0,4]`), "unknown dtype"},
		{"dtype with a value", field(`"dtype":{"U8":1},"shape":[4],"data_offsets":[0,4]`), "expected null"},
		{"two dtypes", field(`"dtype":{"U8":null,"I8":null},"shape":[4],"data_offsets":[0,4]`), "2 variants"},
		{"field names in upper case", field(`"DTYPE":"U8","shape":[4],"data_offsets":[0,4]`),
			"missing field dtype"},
		{"negative dimension", field(`"dtype":"U8","shape":[-4],"data_offsets":[0,4]`),
			"no unsigned integer"},
		{"fractional dimension", field(`"dtype":"U8","shape":[4.0],"data_offsets":[0,4]`),
			"no unsigned integer"},
		{"dimension with an exponent", field(`"dtype":"U8","shape":[4e0],"data_offsets":[0,4]`),
			"no unsigned integer"},
		{"dimension of 2^64", field(`"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]`),
			"no unsigned integer"},
		{"dimension as text", field(`"dtype":"U8","shape":["4"],"data_offsets":[0,4]`), "invalid value"},
		{"null shape", field(`"dtype":"U8","shape":null,"data_offsets":[0,4]`), "expected '['"},
		{"one offset", field(`"dtype":"U8","shape":[4],"data_offsets":[0]`), "1 data_offsets"},
		{"three offsets", field(`"dtype":"U8","shape":[4],"data_offsets":[0,4,4]`),
			"more than two data_offsets"},
		{"minus zero", field(`"dtype":"U8","shape":[4],"data_offsets":[-0,4]`), "no unsigned integer"},
		{"array of two", h(`{"a":["U8",[4]]}`, 4), "array of 2"},
		{"array of four", h(`{"a":["U8",[4],[0,4],0]}`, 4), "more than 3"},
		{"array in another order", h(`{"a":[[4],"U8",[0,4]]}`, 4), `expected '"'`},
		{"malformed but overwritten", h(`{"a":5,"a":["U8",[4],[0,4]]}`, 4), "expected '{'"},

		{"late start", h(`{"a":["U8",[3],[1,4]]}`, 4), "invalid offset"},
		{"gap", h(`{"a":["U8",[1],[0,1]],"b":["U8",[2],[2,4]]}`, 4), "invalid offset"},
		{"overlap", h(`{"a":["U8",[3],[0,3]],"b":["U8",[2],[2,4]]}`, 4), "invalid offset"},
		{"same bytes twice", h(`{"a":["U8",[4],[0,4]],"b":["U8",[4],[0,4]]}`, 4), "invalid offset"},
		{"backwards", h(`{"a":["U8",[4],[0,4]],"b":["U8",[1],[4,3]]}`, 4), "invalid offset"},
		{"shape smaller than the offsets", h(`{"a":["U8",[3],[0,4]]}`, 4), "invalid info"},
		{"shape larger than the offsets", h(`{"a":["F32",[4],[0,4]]}`, 4), "invalid info"},
		{"overflowing product", h(`{"a":["U8",[4294967296,4294967296],[0,0]]}`, 0), "validation overflow"},
		{"overflow before a zero", h(`{"a":["U8",[4294967296,4294967296,0],[0,0]]}`, 0),
			"validation overflow"},
		{"overflowing bits", h(`{"a":["F64",[1152921504606846976],[0,0]]}`, 0), "validation overflow"},
		{"half a byte", h(`{"a":["F4",[7],[0,4]]}`, 4), "misaligned slice"},
		{"tensor past the end", h(`{"a":["U8",[5],[0,5]]}`, 4), "incomplete buffer"},
		{"bytes after the last tensor", h(one, 5), "incomplete buffer"},
		{"bytes and no tensors", h(`{}`, 1), "incomplete buffer"},
		{"dimension of 2^63 beside a zero", h(`{"a":["U8",[0,9223372036854775808],[0,0]]}`, 0), "dimension"},
		{"dimension of 2^62+1 beside a zero", h(`{"a":["U8",[0,4611686018427387905],[0,0]]}`, 0), "shape"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := parse(c.file)
			if !errors.Is(err, formats.ErrNotFormat) {
				t.Fatalf("layout %v, error %v", l, err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("reason %q, want %q", err, c.want)
			}
		})
	}
}

// TestBounds has the headers that are refused for their memory alone.
func TestBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("headers of 40 MB")
	}
	var b strings.Builder
	for i := range maxTensors + 1 {
		fmt.Fprintf(&b, `,"%x":["U8",[0],[0,0]]`, i)
	}
	if _, err := parse(file("{"+b.String()[1:]+"}", 0)); err == nil ||
		!strings.Contains(err.Error(), "tensors") {
		t.Errorf("too many tensors: %v", err)
	}
	dims := strings.Repeat(",0", maxDims+1)[1:]
	if _, err := parse(file(`{"a":["U8",[`+dims+`],[0,0]]}`, 0)); err == nil ||
		!strings.Contains(err.Error(), "dimensions") {
		t.Errorf("too many dimensions: %v", err)
	}
}

// TestHeaderLimit has headers of exactly the greatest length, and does not look at what can be no header.
func TestHeaderLimit(t *testing.T) {
	p := append(binary.LittleEndian.AppendUint64(nil, MaxHeader), "{}"...)
	l, err := Parser{}.Parse(spaces{p}, MaxHeader+8)
	if err != nil || len(l.Regions) != 1 || l.Regions[0].Len != MaxHeader+8 {
		t.Errorf("%v, %v", l, err)
	}
	p = append(binary.LittleEndian.AppendUint64(nil, MaxHeader), "x"...)
	n := testing.AllocsPerRun(1, func() { _, err = Parser{}.Parse(spaces{p}, MaxHeader+8) })
	if !errors.Is(err, formats.ErrNotFormat) || n > 20 {
		t.Errorf("%v, %v allocations", err, n)
	}
}

// spaces is a file that goes on with spaces.
type spaces struct{ start []byte }

func (s spaces) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	if off < int64(len(s.start)) {
		copy(p, s.start[off:])
	}
	return len(p), nil
}

// TestReadError fails each read in turn.
func TestReadError(t *testing.T) {
	p := file(one[:len(one)-1]+strings.Repeat(" ", 10000)+"}", 4)
	for n := range 4 {
		r := &failing{r: bytes.NewReader(p), after: n}
		_, err := Parser{}.Parse(r, int64(len(p)))
		if n < 3 && err != errDisk || n == 3 && err != nil {
			t.Errorf("read %d: %v", n, err)
		}
	}
	for cut := range len(p) - 4 {
		_, err := Parser{}.Parse(bytes.NewReader(p[:cut]), int64(len(p)))
		if err != io.ErrUnexpectedEOF {
			t.Fatalf("file of %d bytes that should have %d: %v", cut, len(p), err)
		}
	}
}

var errDisk = errors.New("disk")

type failing struct {
	r     io.ReaderAt
	after int // reads that succeed
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errDisk
	}
	return f.r.ReadAt(p, off)
}

func TestAppendHeader(t *testing.T) {
	entries := []Entry{
		{Name: "b", DType: formats.F32, Shape: []int64{2, 3}},
		{Name: "", DType: formats.Bool, Shape: []int64{0}},
		{Name: "a\"\\\n\x01é", DType: formats.BF16},
	}
	Sort(entries)
	got, err := AppendHeader(nil, entries, map[string]string{"z": "1", "format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"format":"pt","z":"1"},"":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]},` +
		`"a\"\\\n\u0001é":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	if want := file(header, 0); !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	l, err := parse(append(got, make([]byte, 26)...))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range l.Tensors {
		if x.Name != entries[i].Name || x.DType != entries[i].DType || len(x.Shape) != len(entries[i].Shape) {
			t.Errorf("tensor %d: %v, want %v", i, x, entries[i])
		}
	}
	if empty, err := AppendHeader([]byte("x"), nil, nil); err != nil ||
		string(empty) != "x\x08\x00\x00\x00\x00\x00\x00\x00{}      " {
		t.Errorf("no tensors: %q, %v", empty, err)
	}
	for name, bad := range map[string][]Entry{
		"unsorted":   {{Name: "b", DType: formats.U8}, {Name: "a", DType: formats.U8}},
		"twice":      {{Name: "a", DType: formats.U8}, {Name: "a", DType: formats.U8}},
		"reserved":   {{Name: "__metadata__", DType: formats.U8}},
		"not UTF-8":  {{Name: "\xff", DType: formats.U8}},
		"no type":    {{Name: "a"}},
		"complex128": {{Name: "a", DType: formats.C128}},
		"negative":   {{Name: "a", DType: formats.U8, Shape: []int64{-1}}},
		"too large":  {{Name: "a", DType: formats.U8, Shape: []int64{1 << 62, 4}}},
	} {
		if p, err := AppendHeader(nil, bad, nil); err == nil {
			t.Errorf("%s: %q", name, p)
		}
	}
	if _, err := AppendHeader(nil, nil, map[string]string{"a": "\xff"}); err == nil {
		t.Error("metadata that is not UTF-8 was written")
	}
}

// bound is what a file may take.
var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 100}

// FuzzParse checks that what is accepted covers the file, and that its header written again says the same.
func FuzzParse(f *testing.F) {
	for _, p := range fixtures(f) {
		f.Add(p)
	}
	f.Add(file(one, 4))
	f.Add(file(`{"__metadata__":{"a":"b"},"\ud83d\ude00":["F4",[2],[0,1]],"x":{"dtype":{"I8":null},"shape":[0],"data_offsets":[1,1]}}`, 1))
	f.Fuzz(func(t *testing.T, p []byte) {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil && writable(l) {
			rewrite(t, p, l)
		}
	})
}

// writable reports whether AppendHeader can write the layout's tensors.
func writable(l *formats.Layout) bool {
	for _, x := range l.Tensors {
		if !HasType(x.DType) || x.Name == metadataKey {
			return false
		}
	}
	return true
}

// rewrite writes the tensors of l to a new file in the order of their names, and parses that.
func rewrite(t *testing.T, p []byte, l *formats.Layout) {
	var entries []Entry
	bytesOf := make(map[string][]byte)
	for _, x := range l.Tensors {
		entries = append(entries, Entry{x.Name, x.DType, x.Shape})
		if x.Region >= 0 {
			r := l.Regions[x.Region]
			bytesOf[x.Name] = p[r.Off : r.Off+r.Len]
		}
	}
	Sort(entries)
	out, err := AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(out)%8 != 0 {
		t.Fatalf("data at %d", len(out))
	}
	for _, e := range entries {
		out = append(out, bytesOf[e.Name]...)
	}
	l2, err := parse(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(l2.Tensors) != len(entries) {
		t.Fatalf("%d tensors, want %d", len(l2.Tensors), len(entries))
	}
	for i, x := range l2.Tensors {
		e := entries[i]
		if x.Name != e.Name || x.DType != e.DType || !reflect.DeepEqual(x.Shape, e.Shape) {
			t.Fatalf("tensor %v, want %v", x, e)
		}
		if x.Region >= 0 {
			r := l2.Regions[x.Region]
			if !bytes.Equal(out[r.Off:r.Off+r.Len], bytesOf[e.Name]) {
				t.Fatalf("tensor %q: other bytes", x.Name)
			}
		}
	}
}

// TestManyTensors: of a header of very many tensors each takes little more than what is told of it.
func TestManyTensors(t *testing.T) {
	const tensors, perTensor = 50_000, 240
	var b strings.Builder
	for i := range tensors {
		fmt.Fprintf(&b, `,"l.%05d.weight":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, i, i, i+1)
	}
	header := "{" + b.String()[1:] + "}"
	p := file(header, tensors)
	bound := fixture.Bound{Fixed: uint64(len(header)) + tensors*perTensor}
	if l := fixture.Check(t, Parser{}, p, bound); l == nil || len(l.Tensors) != tensors {
		t.Fatal("not parsed")
	}
	var l *formats.Layout
	stay := staying(func() { l, _ = parse(p) })
	runtime.KeepAlive(l)
	if stay > tensors*160 {
		t.Errorf("%d bytes stay of each tensor", stay/tensors)
	}
}

// staying is what f leaves in the heap.
func staying(f func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// TestBound: what needs more memory than there is is of no format, and takes little to be found so.
func TestBound(t *testing.T) {
	var b strings.Builder
	const tensors = 4000
	for i := range tensors {
		fmt.Fprintf(&b, `,"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, i, i, i+1)
	}
	p := file("{"+b.String()[1:]+"}", tensors)
	for memory, want := range map[int64]string{
		0:       "",
		4 << 20: "",
		1 << 20: "for which --memory has room",
		1 << 18: "more than --memory has room for",
	} {
		l, err := Parser{}.Bound(memory).Parse(bytes.NewReader(p), int64(len(p)))
		switch {
		case want == "" && (err != nil || len(l.Tensors) != tensors):
			t.Errorf("%d bytes of memory: %v", memory, err)
		case want != "" && (!errors.Is(err, formats.ErrNotFormat) || !strings.Contains(err.Error(), want)):
			t.Errorf("%d bytes of memory: %v", memory, err)
		}
	}
}
