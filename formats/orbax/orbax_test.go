package orbax

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/ocdbt"
)

// under reads below a folder.
func under(dir string) ocdbt.Read {
	return func(path string, off, n, limit int64) ([]byte, error) {
		p, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return nil, err
		}
		if n < 0 {
			off, n = 0, int64(len(p))
		}
		if n > limit || off > int64(len(p)) || n > int64(len(p))-off {
			return nil, fmt.Errorf("%w: %s: bytes %d+%d", formats.ErrNotFormat, path, off, n)
		}
		return p[off : off+n], nil
	}
}

// TestArrays: what Orbax wrote is listed, by the keys of the tree, whatever holds it.
func TestArrays(t *testing.T) {
	want := []string{
		"('a/b',) F16 [2]", "params/counts/0 I32 [5]", "params/counts/1 I64 []",
		"params/layer.0/bias F32 [30]", "params/layer.0/kernel BF16 [20 30]", "step I64 []",
	}
	for _, name := range []string{"ocdbt", "zarr3", "loose"} {
		arrays, err := Arrays(under("../testdata/orbax/" + name + "/state"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, a := range arrays {
			got = append(got, fmt.Sprint(a.Name, " ", a.DType, " ", a.Shape))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, want)
		}
	}
	if _, err := Arrays(under("../testdata/orbax/wide")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without %s: %v", Metadata, err)
	}
}

// files is a folder in memory.
type files map[string]string

func (f files) read(path string, off, n, limit int64) ([]byte, error) {
	p, ok := f[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(p), nil
}

func tree(tuples ...string) string {
	var entries []string
	for _, tuple := range tuples {
		var keys []string
		for _, k := range strings.Split(tuple, "|") {
			keys = append(keys, fmt.Sprintf(`{"key":%q,"key_type":2}`, k))
		}
		entries = append(entries, fmt.Sprintf(`%q:{"key_metadata":[%s]}`,
			"('"+strings.ReplaceAll(tuple, "|", "', '")+"',)", strings.Join(keys, ",")))
	}
	return `{"tree_metadata":{` + strings.Join(entries, ",") + `},"use_ocdbt":false}`
}

func TestNames(t *testing.T) {
	const array = `{"shape":[2],"dtype":"|u1"}`
	f := files{
		Metadata:        tree("a|b.c", "a.b|c", "x.y|z", "no array", "..|up", "odd"),
		"a.b.c/.zarray": array, "x.y.z/.zarray": array, "../up/.zarray": array,
		"odd/zarr.json": `{"shape":[],"data_type":{"name":"struct"}}`,
	}
	got, err := Arrays(f.read)
	if err != nil || len(got) != 2 || got[0].Name != "odd" || got[0].DType != "unknown" ||
		got[1].Name != "x.y/z" || got[1].DType != formats.U8 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefuses(t *testing.T) {
	for name, f := range map[string]files{
		"no JSON":  {Metadata: "{"},
		"no tree":  {Metadata: "{}"},
		"an array": {Metadata: tree("a"), "a/.zarray": "x"},
		"a shape":  {Metadata: tree("a"), "a/.zarray": `{"shape":[-1],"dtype":"<f4"}`},
		"a large shape": {Metadata: tree("a"),
			"a/.zarray": `{"shape":[4611686018427387904,4],"dtype":"<f4"}`},
	} {
		if got, err := Arrays(f.read); !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
