package sentencepiece

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"ckptfs/formats/fixture"
)

// field is a field of a message that is bytes.
func field(number byte, p string) string { return string([]byte{number<<3 | 2, byte(len(p))}) + p }

func message(text string, score float32, typ Type) string {
	p := field(1, text) + string(binary.LittleEndian.AppendUint32([]byte{2<<3 | 5}, math.Float32bits(score)))
	if typ != Normal {
		p += string([]byte{3 << 3, byte(typ)})
	}
	return field(1, p)
}

var model = message("<unk>", 0, Unknown) + message("<s>", 0, Control) + message("▁a", -1.5, Normal) +
	message("<sep>", 0, UserDefined) + field(2, "\x08\x01") + field(1, field(1, "b"))

func TestParse(t *testing.T) {
	got, err := Parse([]byte(model))
	want := []Piece{{"<unk>", 0, Unknown}, {"<s>", 0, Control}, {"▁a", -1.5, Normal},
		{"<sep>", 0, UserDefined}, {"b", 0, Normal}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	bytes := model + field(2, "\x98\x02\x01")
	for i := range 256 {
		if _, err := Parse([]byte(bytes)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d bytes: %v", i, err)
		}
		bytes += message(fmt.Sprintf("<0x%02X>", i), 0, Byte)
	}
	if got, err := Parse([]byte(bytes)); err != nil || len(got) != len(want)+256 {
		t.Errorf("%d pieces, %v", len(got), err)
	}
}

func TestRefused(t *testing.T) {
	for name, file := range map[string]string{
		"nothing":        "",
		"no unknown":     message("a", 0, Normal),
		"two unknown":    model + message("x", 0, Unknown),
		"twice":          model + message("b", 0, Normal),
		"empty":          model + message("", 0, Normal),
		"no text":        model + message("\xff", 0, Normal),
		"another type":   model + message("x", 0, 7),
		"cut short":      model[:len(model)-1],
		"a field amiss":  model + field(1, "\x0d\x00\x00\x00\x00"),
		"no message":     model + "\x08\x01",
		"a byte":         model + message("<0x0A>", 0, Byte),
		"a score amiss":  model + field(1, field(1, "x")+"\x10\x01"),
		"no type at all": model + message("x", 0, 0),
	} {
		if p, err := Parse([]byte(file)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(model))
	f.Fuzz(func(t *testing.T, file []byte) {
		fixture.Within(t, fixture.Bound{Fixed: 64 << 10, PerByte: 400}, len(file), func() {
			if _, err := Parse(file); err != nil && !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
		})
	})
}
