package formats

import (
	"slices"
	"testing"
)

func TestPieceName(t *testing.T) {
	for _, name := range []string{"w", "a/b[0:1]", "größe"} {
		x := Tensor{Shape: []int64{4, 36}}
		x.Name = PieceName(name, []int64{32, 0}, x.Shape)
		if array, origin, ok := ParsePiece(&x); !ok || array != name ||
			!slices.Equal(origin, []int64{32, 0}) || x.Name != name+"[32:36,0:36]" {
			t.Errorf("%q: %q, %v, %v", x.Name, array, origin, ok)
		}
	}
	for _, name := range []string{"w", "w[]", "w[0:4]", "w[0:4,0:35]", "w[0:4,0:36", "w[00:4,0:36]",
		"w[+0:4,0:36]", "w[-4:0,0:36]", "w[0:4,0:36,0:1]", "w[9223372036854775807:3,0:36]", "[:,:]"} {
		if array, _, ok := ParsePiece(&Tensor{Name: name, Shape: []int64{4, 36}}); ok {
			t.Errorf("%q is a piece of %q", name, array)
		}
	}
}
