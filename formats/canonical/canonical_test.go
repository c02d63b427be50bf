package canonical_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/canonical"
	"ckptfs/formats/detect"
	"ckptfs/formats/fixture"
)

// expected is what another implementation says (formats/testdata/arrays.py).
type expected struct{ ID, Index string }

func ids(t testing.TB) map[string]expected {
	t.Helper()
	var out map[string]expected
	p, err := os.ReadFile(fixture.Root + "/ids.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func compare(t *testing.T, r io.ReaderAt, l *formats.Layout, want expected) {
	t.Helper()
	x, err := canonical.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(x.Append(nil)); got != want.Index {
		t.Errorf("index\n%s, want\n%s", got, want.Index)
	}
	for _, workers := range []int{1, 3} {
		id, err := canonical.Identify(context.Background(), r, l, workers)
		if err != nil {
			t.Fatal(err)
		}
		if id.String() != want.ID || len(want.ID) != 117 {
			t.Errorf("id %s, want %s", id, want.ID)
		}
		if back, err := canonical.ParseID(want.ID); err != nil || back != id {
			t.Errorf("ParseID: %v, %v", back, err)
		}
	}
	if y, err := canonical.Decode(x.Append(nil)); err != nil || string(y.Append(nil)) != want.Index {
		t.Errorf("Decode: %v", err)
	}
}

// TestOneIdentity: the same tensors have one id whatever format they are in, in whatever order.
func TestOneIdentity(t *testing.T) {
	want := ids(t)
	for name, key := range map[string]string{
		"model.safetensors": "same", "model.pt": "same", "model.npz": "same", "reversed.safetensors": "same",
		"shuffled.safetensors": "same", "views.pt": "views",
	} {
		t.Run(name, func(t *testing.T) {
			p := fixture.Read(t, "same/"+name)
			l, err := detect.Detect(bytes.NewReader(p), int64(len(p)))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, bytes.NewReader(p), l, want[key])
		})
	}
}

// layout is one of regions of these lengths, with a byte of garbage between them.
func layout(tensors []formats.Tensor, lens ...int64) (*formats.Layout, int64) {
	l := &formats.Layout{Tensors: tensors}
	var off int64
	for _, n := range lens {
		l.Regions = append(l.Regions, formats.Region{Off: off, Len: n, Kind: formats.Data},
			formats.Region{Off: off + n, Len: 1})
		off += n + 1
	}
	return l, off
}

func TestLarge(t *testing.T) {
	const n = 2_600_000
	l, size := layout([]formats.Tensor{
		{Name: "large", DType: formats.U8, Shape: []int64{n}, Region: 0},
		{Name: "a", DType: formats.U8, Shape: []int64{3}, Region: 2},
	}, n, 3)
	p := bytes.Repeat([]byte{0xee}, int(size))
	for i := range n {
		p[i] = byte(uint64(i) * uint64(i) % 251)
	}
	copy(p[n+1:], "\x01\x02\x03")
	compare(t, bytes.NewReader(p), l, ids(t)["large"])
}

func TestNothing(t *testing.T) {
	l, _ := layout([]formats.Tensor{{Name: "e", DType: formats.F32, Shape: []int64{2, 0, 3}, Region: -1}})
	compare(t, bytes.NewReader(nil), l, ids(t)["nothing"])
}

// TestPad: the stream's gaps are zeros whatever lies between the storages in the file, and an empty tensor
// moves nothing.
func TestPad(t *testing.T) {
	l, size := layout([]formats.Tensor{
		{Name: "c", DType: formats.U8, Shape: []int64{1}, Region: 0},
		{Name: "b", DType: formats.U8, Shape: []int64{3}, Region: 2},
		{Name: "a", DType: formats.U8, Shape: []int64{1}, Region: 4},
		{Name: "b0", DType: formats.F64, Shape: []int64{0}, Region: -1},
	}, 1, 3, 1)
	p := bytes.Repeat([]byte{0xff}, int(size))
	x, err := canonical.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	s, err := canonical.NewStream(x, bytes.NewReader(p), l.Regions)
	if err != nil {
		t.Fatal(err)
	}
	const want = "\xff\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\x00\x00\x00\x00\x00\xff"
	got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()))
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if e := x.Entries[2]; e.Name != "b0" || e.Offset != 11 || e.Size != 0 {
		t.Errorf("%+v", e)
	}
	for off := range want { // every read is a part of the whole
		for n := range len(want) - off + 1 {
			q := make([]byte, n)
			if _, err := s.ReadAt(q, int64(off)); err != nil || string(q) != want[off:off+n] {
				t.Fatalf("%d bytes at %d: %q, %v", n, off, q, err)
			}
		}
	}
	spans, err := x.Map()
	if err != nil || len(spans) != 5 || !spans[1].Pad || spans[1].Len != 7 {
		t.Errorf("%+v, %v", spans, err)
	}
}

func TestNoID(t *testing.T) {
	one := formats.Tensor{Name: "a", DType: formats.U8, Shape: []int64{4}, Region: 0}
	odd := formats.Tensor{Name: "a", DType: formats.F4, Shape: []int64{2, 1}, Region: 0}
	for name, l := range map[string]*formats.Layout{
		"no tensors": {}, "partial": {Partial: true, Tensors: []formats.Tensor{one}},
		"one name twice": {Tensors: []formats.Tensor{one, one}},
		"half a pair":    {Tensors: []formats.Tensor{odd}},
	} {
		l.Regions = []formats.Region{{Len: 4, Kind: formats.Data}}
		if _, err := canonical.Build(l); !errors.Is(err, canonical.ErrNoID) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLies: an index whose bounds lie, or that is not written as it must be, is refused.
func TestLies(t *testing.T) {
	for name, p := range map[string]string{
		"good":                          `{"a":[0,8,[2],[1],"torch.float32",0],"b":[0,8,[1],[1],"torch.float32",4]}`,
		"no elements":                   `{"a":[3,0,[0],[1],"torch.float32",0]}`,
		"nothing":                       `{}`,
		"past the storage":              `{"a":[0,8,[3],[1],"torch.float32",0]}`,
		"past the storage by its start": `{"a":[0,8,[2],[1],"torch.float32",4]}`,
		"past the storage by a stride":  `{"a":[0,8,[2],[2],"torch.float32",0]}`,
		"strides that overflow":         `{"a":[0,8,[4294967296,4294967296],[4294967296,4294967296],"torch.float32",0]}`,
		"overlap":                       `{"a":[0,8,[2],[1],"torch.float32",0],"b":[4,8,[2],[1],"torch.float32",0]}`,
		"overlap of the same start":     `{"a":[0,8,[2],[1],"torch.float32",0],"b":[0,4,[1],[1],"torch.float32",0]}`,
		"end past 2^63":                 `{"a":[9223372036854775800,16,[2],[1],"torch.float32",0]}`,
		"past 2^63":                     `{"a":[18446744073709551608,8,[2],[1],"torch.float32",0]}`,
		"a negative stride":             `{"a":[0,8,[2],[-1],"torch.float32",0]}`,
		"a fraction":                    `{"a":[0,8.0,[2],[1],"torch.float32",0]}`,
		"strides of another rank":       `{"a":[0,8,[2],[],"torch.float32",0]}`,
		"a key twice":                   `{"a":[0,8,[2],[1],"torch.float32",0],"a":[0,8,[2],[1],"torch.float32",0]}`,
		"out of order":                  `{"b":[0,8,[2],[1],"torch.float32",0],"a":[0,8,[2],[1],"torch.float32",0]}`,
		"a space":                       `{"a": [0,8,[2],[1],"torch.float32",0]}`,
		"an escape without need":        `{"\u0061":[0,8,[2],[1],"torch.float32",0]}`,
		"a field too many":              `{"a":[0,8,[2],[1],"torch.float32",0,0]}`,
		"a field too few":               `{"a":[0,8,[2],[1],"torch.float32"]}`,
		"text after":                    `{}{}`,
		"a null":                        `{"a":[0,8,null,[1],"torch.float32",0]}`,
		"not UTF-8":                     "{\"\xff\":[0,8,[2],[1],\"torch.float32\",0]}",
		"cut":                           `{"a":[0,8,[2]`,
		"empty":                         ``,
	} {
		_, err := canonical.Decode([]byte(p))
		if good := name == "good" || name == "no elements" || name == "nothing"; good != (err == nil) ||
			!good && !errors.Is(err, canonical.ErrIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseID(t *testing.T) {
	good := ids(t)["same"].ID
	for _, s := range []string{"", "mi2:", good[:116], good + "a", strings.ToUpper(good), "mi1" + good[3:],
		good[:60] + good[61:] + "a",
		good[:116] + "7", strings.Replace(good, ":b", ":c", 1)} {
		if id, err := canonical.ParseID(s); err == nil {
			t.Errorf("%q: %v", s, id)
		}
	}
}

func TestErrors(t *testing.T) {
	l, _ := layout([]formats.Tensor{{Name: "a", DType: formats.U8, Shape: []int64{4}, Region: 0}}, 4)
	_, err := canonical.Identify(context.Background(), strings.NewReader("ab"), l, 2)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file cut short: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := canonical.Identify(ctx, strings.NewReader("abcd"), l, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, e := range ids(f) {
		f.Add([]byte(e.Index))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		x, err := canonical.Decode(p)
		if err != nil {
			if !errors.Is(err, canonical.ErrIndex) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(x.Append(nil), p) {
			t.Fatal("encoded otherwise")
		}
		spans, err := x.Map()
		var end int64
		for _, s := range spans {
			if s.Off != end || s.Len <= 0 {
				t.Fatalf("%+v", spans)
			}
			end += s.Len
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
