package state

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/golden"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// The tables are those of the package comment.
func TestGolden(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "remote.db"))
	must(t, db.SetIdentity(me))
	must(t, db.Condemn(3, []record.ID{{8}}))
	must(t, db.SetHeads(map[record.Writer]Kept{"a.00000001": {"v1", []byte("head")}}))
	must(t, db.SetNames(map[string][]byte{"runs/a": []byte("name"), "runs/a/3": []byte("name")}))
	f := &record.File{Size: 0x12345678, Manifest: cas.Hash{5},
		Plan: record.Ref{Object: record.ID{0xaa}, Off: 0x40, Stored: 0x20}, Deps: []record.ID{{0xaa}, {0xbb}}}
	must(t, db.SetFiles([]*record.File{f, {Manifest: f.Manifest, Size: f.Size}}))
	if got, err := db.File(f.Manifest); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := db.File(cas.Hash{6}); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	o := record.Object{ID: record.ID{0xaa}, Class: record.ClassMeta, Len: 0x123456}
	must(t, db.Learn(o, []objects.Placed{
		{Hash: cas.Hash{1, 2, 3}, Off: 0x40, Raw: 0x30, Stored: 0x20, CRC: 0x01020304, Kind: cas.Manifest},
		{Hash: cas.Hash{1, 2, 2}, Off: 0x100, Raw: 0x40000, Stored: 0x21, CRC: 0xf1f2f3f4, Kind: cas.Chunk,
			Based: true},
	}))
	var got strings.Builder
	for _, name := range []string{"self", "objects", "places", "condemned", "heads", "names", "files"} {
		fmt.Fprintf(&got, "# %s\n", name)
		must(t, db.file.Bucket(name).Scan(nil, func(key, value []byte) error {
			fmt.Fprintf(&got, "%q\n", key)
			for ; len(value) > 0; value = value[min(32, len(value)):] {
				fmt.Fprintf(&got, "    %x\n", value[:min(32, len(value))])
			}
			return nil
		}))
	}
	golden.Same(t, "state.hex", got.String())
}
