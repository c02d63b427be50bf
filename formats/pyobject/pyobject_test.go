package pyobject

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

var bound = fixture.Bound{Fixed: 2 << 20, PerByte: 2000}

func FuzzPickle(f *testing.F) { fixture.Fuzz(f, Parser{}, "sklearn/*", bound) }

func TestForest(t *testing.T) {
	for _, name := range []string{"sklearn/forest5.pkl", "sklearn/forest.joblib"} {
		l := fixture.Check(t, Parser{}, fixture.Read(t, name), bound)
		if l == nil || !l.Fine || !l.Partial {
			t.Fatalf("%s: %+v", name, l)
		}
		var nodes []int64
		for _, r := range l.Regions {
			if r.Kind == formats.Data {
				nodes = append(nodes, r.Len)
			}
		}
		if fmt.Sprint(nodes) != "[16320 16192]" { // 64 bytes a node
			t.Errorf("%s: data %v", name, nodes)
		}
	}
}

// vector is the pickle of a float64 array of one row in protocol 4, with these lengths of shape and bytes.
func vector(rows, n int) []byte {
	var b bytes.Buffer
	b.WriteString("\x80\x04cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01J")
	_ = binary.Write(&b, binary.LittleEndian, int32(rows))
	b.WriteString("K\x01\x86cnumpy\ndtype\n\x8c\x02f8\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89B")
	_ = binary.Write(&b, binary.LittleEndian, uint32(n))
	b.Write(make([]byte, min(n, 1<<20)))
	b.WriteString("tb.")
	return b.Bytes()
}

func TestArray(t *testing.T) {
	l := fixture.Check(t, Parser{}, vector(1000, 8000), bound)
	if l == nil || len(l.Tensors) != 1 || l.Tensors[0].DType != formats.F64 {
		t.Fatalf("%+v", l)
	}
	for name, p := range map[string][]byte{
		"more elements than bytes": vector(1001, 8000),
		"fewer":                    vector(999, 8000),
		"none":                     vector(0, 8000),
		"negative":                 vector(-1, 8000),
		"a small array":            vector(10, 80),
		"an unknown type":          bytes.Replace(vector(1000, 8000), []byte("f8"), []byte("q8"), 1),
		"another function": bytes.Replace(vector(1000, 8000), []byte("_reconstruct"),
			[]byte("_reconstract"), 1),
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l == nil || len(l.Tensors) != 0 ||
			len(l.Regions) != 1 || !l.Fine {
			t.Errorf("%s: %+v", name, l)
		}
	}
	for name, p := range map[string][]byte{
		"cut":            vector(1000, 8000)[:5000],
		"past the file":  vector(1000, 1<<31),
		"no STOP":        vector(1000, 8000)[:8150],
		"garbage after":  append(vector(1000, 8000), "garbage"...),
		"unknown opcode": []byte("\x80\x04\xff."),
		"protocol 6":     []byte("\x80\x06N."),
		"empty":          nil,
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// Presume says of what is one Blob what Parse finds out.
func TestPresume(t *testing.T) {
	agreed := 0
	for _, name := range []string{"sklearn/boosted.joblib", "sklearn/boosted2.pkl", "sklearn/boosted5.pkl",
		"sklearn/two.pkl", "sklearn/forest5.pkl"} {
		p := fixture.Read(t, name)
		l, err := Parser{}.Parse(bytes.NewReader(p), int64(len(p)))
		if err != nil {
			t.Fatal(err)
		}
		as, err := Presume(bytes.NewReader(p), int64(len(p)))
		if err != nil || as == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := as(l.Format); len(l.Regions) == 1 {
			agreed++
			if !reflect.DeepEqual(got, l) {
				t.Errorf("%s: %+v, want %+v", name, got, l)
			}
		}
		if as("blob") != nil || as("safetensors") != nil {
			t.Errorf("%s: of any format", name)
		}
	}
	if agreed < 3 {
		t.Errorf("only %d are one blob", agreed)
	}
	for _, p := range []string{"", "\x80", "\x80\x04", "\x80\x04N", "\x80\x07N.", "PK\x03\x04."} {
		if as, err := Presume(strings.NewReader(p), int64(len(p))); as != nil || err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	if as, err := Presume(strings.NewReader(""), maxFine+1); as != nil || err != nil {
		t.Errorf("too long: %v", err)
	}
}

// endless is a file of size bytes: head, then one byte for ever, then tail.
type endless struct {
	head, tail string
	fill       byte
	size, read int64
}

func (e *endless) ReadAt(p []byte, off int64) (int, error) {
	e.read += int64(len(p))
	for i := range p {
		switch at := off + int64(i); {
		case at >= e.size:
			return i, io.EOF
		case at < int64(len(e.head)):
			p[i] = e.head[at]
		case at >= e.size-int64(len(e.tail)):
			p[i] = e.tail[at-(e.size-int64(len(e.tail)))]
		default:
			p[i] = e.fill
		}
	}
	return len(p), nil
}

// TestLarge: a pickle with an array of a terabyte is read without reading it; one of many million opcodes
// takes no memory.
func TestLarge(t *testing.T) {
	const tera = 1 << 40
	head := strings.Replace(string(vector(1<<30, 0)), "K\x01\x86", "J\x80\x00\x00\x00\x86", 1)
	head = head[:len(head)-len("B\x00\x00\x00\x00tb.")] + "\x8e" +
		string(binary.LittleEndian.AppendUint64(nil, tera))
	e := &endless{head: head, tail: "tb.", size: int64(len(head)) + tera + 3}
	l, err := Parser{}.Parse(e, e.size)
	if err != nil || len(l.Tensors) != 1 || l.Check(e.size) != nil || e.read > 1<<20 {
		t.Fatalf("%+v, %v, %d bytes read", l, err, e.read)
	}
	for _, fill := range []byte{'N', '(', ']', '\x94'} {
		e := &endless{head: "\x80\x04N", fill: fill, tail: ".", size: 8 << 20}
		if l, err := (Parser{}).Parse(e, e.size); err != nil || len(l.Regions) != 1 {
			t.Errorf("%q: %v, %v", fill, l, err)
		}
		if e.read > 3*e.size {
			t.Errorf("%q: %d bytes read of %d", fill, e.read, e.size)
		}
	}
}
