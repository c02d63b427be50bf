package volume

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// What Orbax wrote is no model, and says so; of what torch.distributed.checkpoint wrote each file is one, and
// comes from that of the same name in the step before.
func TestFoldersOfArrays(t *testing.T) {
	r := newRig(t)
	for _, step := range []string{"1", "2"} {
		r.folder("runs/orbax/"+step, "orbax/ocdbt")
		r.folder("runs/dcp/"+step, "dcp/two")
	}
	r.sync()
	if _, err := r.Lineage(t.Context(), "runs/orbax/2"); !errors.Is(err, unix.ENODATA) ||
		!strings.Contains(err.Error(), "no model") {
		t.Error(err)
	}
	like := control.MatchOptions{Like: "runs/orbax/2"}
	if _, err := r.Match(t.Context(), like); !errors.Is(err, unix.ENODATA) {
		t.Error(err)
	}
	l, err := r.Lineage(t.Context(), "runs/dcp/2")
	if err != nil || l.Problem != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	if o, err := r.Owner(t.Context(), "runs/dcp/2", "model.scalar"); err != nil ||
		!strings.HasPrefix(o.Owner.Path, "runs/dcp/1/") {
		t.Errorf("%+v, %v", o, err)
	}
	var names []string
	for _, m := range l.Models {
		names = append(names, path.Base(m.Path))
		if m.How != "previous step" || len(m.Chain) != 2 || path.Base(m.Chain[1].Path) != path.Base(m.Path) ||
			m.Chain[0].OwnedTensors != 0 {
			t.Errorf("%+v", m)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"__0_0.distcp", "__1_0.distcp"}) {
		t.Errorf("%q", names)
	}
}
