package text

import (
	"strings"
	"testing"

	"ckptfs/fs/control"
)

func TestReproduced(t *testing.T) {
	l := &control.Lineage{Reproduced: []control.Reproduction{
		{Path: "m.gguf", What: "Q4_K of x/1\n", Share: 0.99998, StoredBytes: 2048, Contradicts: "y/1"},
		{Path: "n.gguf", What: "merge 0.7 a + 0.3 b", Share: 1},
	}}
	var b strings.Builder
	Lineage(&b, l)
	want := `m.gguf: reproduced: "Q4_K of x/1\n"; 99.9 % of its tensors' bytes follow, given 2.00 KiB
   though y/1 is declared as its parent
n.gguf: reproduced: merge 0.7 a + 0.3 b; 100 % of its tensors' bytes follow, given 0 B
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
