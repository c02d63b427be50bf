package protowire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// sample is a message with a field of each type, a message within, packed numbers, and 10,000 bytes that are
// passed over.
func sample() []byte {
	var p []byte
	tag := func(number int, t Type) byte { return byte(number<<3) | byte(t) }
	p = append(p, tag(1, Varint), 0x96, 0x01)
	p = append(p, tag(2, Fixed64), 1, 0, 0, 0, 0, 0, 0, 0x80)
	p = append(p, tag(3, Fixed32), 2, 0, 0, 0x80)
	p = append(p, tag(4, Bytes), 2, tag(1, Varint), 7)
	p = append(p, tag(5, Bytes), 4, 1, 0xac, 0x02, 3)
	p = binary.AppendUvarint(append(p, tag(6, Bytes)), 10_000)
	p = append(p, make([]byte, 10_000)...)
	return append(p, tag(7, Bytes), 2, 'h', 'i')
}

// dump writes down all that a Reader finds in a sample.
func dump(r *Reader) (string, error) {
	var b strings.Builder
	err := r.Fields(r.All(), func(f Field) error {
		fmt.Fprintf(&b, "%d:%d", f.Number, f.Type)
		switch {
		case f.Type != Bytes:
			fmt.Fprintf(&b, "=%x ", f.Value)
		case f.Number == 4:
			return r.Message(f, func(f Field) error {
				fmt.Fprintf(&b, "{%d=%d} ", f.Number, f.Value)
				return nil
			})
		case f.Number == 5:
			return r.Numbers(f, Varint, func(v uint64) { fmt.Fprintf(&b, "[%d]", v) })
		case f.Number == 7:
			p, err := r.Bytes(f.Span)
			fmt.Fprintf(&b, "%s", p)
			return err
		default:
			fmt.Fprintf(&b, "%d+%d ", f.Span.Off, f.Span.Len())
		}
		return nil
	})
	return b.String(), err
}

func TestFields(t *testing.T) {
	p := sample()
	want := "1:0=96 2:1=8000000000000001 3:5=80000002 4:2{1=7} 5:2[1][300][3]6:2" +
		fmt.Sprintf("%d+10000 7:2hi", len(p)-10_000-4)
	for name, r := range map[string]*Reader{
		"in memory":       In(p),
		"a small window":  New(bytes.NewReader(p), int64(len(p)), 10, math.MaxInt64),
		"a large window":  New(bytes.NewReader(p), int64(len(p)), 1<<20, math.MaxInt64),
		"a budget of all": New(bytes.NewReader(p), int64(len(p)), 64, int64(len(p))-10_000),
	} {
		if got, err := dump(r); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	r := New(bytes.NewReader(p), int64(len(p)), 64, int64(len(p))-10_000-1)
	if got, err := dump(r); !errors.Is(err, ErrInvalid) {
		t.Errorf("a byte less: %s, %v", got, err)
	}
	r = New(bytes.NewReader(p[:20]), int64(len(p)), 64, math.MaxInt64)
	if got, err := dump(r); err != io.ErrUnexpectedEOF {
		t.Errorf("a file that is shorter than was said: %s, %v", got, err)
	}
}

func TestInvalid(t *testing.T) {
	for name, p := range map[string][]byte{
		"a tag alone":            {0x08},
		"half a tag":             {0x88},
		"field 0":                {0x00, 0},
		"field 2^29":             {0x80, 0x80, 0x80, 0x80, 0x10, 0},
		"a group":                {0x0b, 0x0c},
		"type 6":                 {0x0e, 0},
		"type 7":                 {0x0f, 0},
		"seven bytes of eight":   {0x09, 0, 0, 0, 0, 0, 0, 0},
		"three bytes of four":    {0x0d, 0, 0, 0},
		"a length past the end":  {0x0a, 2, 0},
		"a length past 2^63":     {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"a number past 64 bits":  {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2},
		"a number of 11 bytes":   {0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0},
		"a number that is cut":   {0x08, 0x80, 0x80},
		"a good field, then not": {0x08, 1, 0x0a},
	} {
		for _, r := range []*Reader{In(p), New(bytes.NewReader(p), int64(len(p)), 10, math.MaxInt64)} {
			if err := r.Fields(r.All(), func(Field) error { return nil }); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	r := In([]byte{0x0a, 1, 0x80})
	err := r.Fields(r.All(), func(f Field) error { return r.Message(f, nil) })
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("a message whose number ends past it: %v", err)
	}
	if err := r.Fields(Span{0, 4}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("past the end: %v", err)
	}
	if _, err := r.Bytes(Span{0, 4}); !errors.Is(err, ErrInvalid) {
		t.Errorf("bytes past the end: %v", err)
	}
	if err := r.Message(Field{Number: 1}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a number as a message: %v", err)
	}
}

// FuzzFields: what a window shows is what is in memory, to any depth.
func FuzzFields(f *testing.F) {
	f.Add(sample(), 10)
	f.Add([]byte{0x0a, 3, 0x0a, 1, 0x80}, 11)
	f.Fuzz(func(t *testing.T, p []byte, window int) {
		window = 10 + window&0xfff
		walk := func(r *Reader) (all []Field, err error) {
			var down func(Field) error
			down = func(f Field) error {
				all = append(all, f)
				if f.Type == Bytes && f.Span.Len() > 0 && len(all) < 1000 {
					_ = r.Message(f, down)
					if b, err := r.Bytes(f.Span); err != nil || !bytes.Equal(b, p[f.Span.Off:f.Span.End]) {
						t.Fatalf("bytes of %v: %v", f.Span, err)
					}
				}
				return nil
			}
			err = r.Fields(r.All(), down)
			return all, err
		}
		one, oneErr := walk(In(p))
		two, twoErr := walk(New(bytes.NewReader(p), int64(len(p)), window, math.MaxInt64))
		if !slices.Equal(one, two) || (oneErr == nil) != (twoErr == nil) {
			t.Fatalf("%v, %v; %v, %v", one, oneErr, two, twoErr)
		}
	})
}
