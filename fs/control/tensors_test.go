package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"ckptfs/cas"
)

// loom is a shelf with tensors. One called "torn" ends early.
type loom struct{ *shelf }

func (l loom) Inspect(ctx context.Context, path string, o InspectOptions, tensors Passes,
	progress func(Progress)) (*File, error) {
	f, err := l.Show(ctx, path, nil)
	if err == nil && o.Stats {
		progress(Progress{DoneBytes: 1, TotalBytes: 1})
		f.Tensors[0].Stats = &TensorStats{Count: 6, Min: -1, Max: 2, Mean: Number(0.5)}
	}
	if err == nil && o.Artifact {
		f.Artifact = "mi2"
	}
	return f, err
}

func (l loom) Verify(_ context.Context, a, b string, progress func(Progress)) (*Verified, error) {
	progress(Progress{DoneBytes: 5})
	return &Verified{A: a, B: b, Share: 0.5}, nil
}

func (l loom) Outline(_ context.Context, o OutlineOptions) (*Outline, error) {
	t := Owned{Tensor: Tensor{Name: fmt.Sprintf("%+v", o), Shared: 2}}
	return &Outline{File: &File{Path: o.Path}, Count: 3, TensorBytes: 8, Below: 2, Listed: []Owned{t},
		Level:  []Level{{Name: "a.", Tensors: 2, Tensor: &Owned{Owner: -1}}},
		Models: []Model{{Path: "first"}}}, nil
}

func (l loom) Tensor(_ context.Context, path, name string, npy bool) (*TensorData, error) {
	p := bytes.Repeat([]byte(name), 1<<18)
	if npy {
		p = append([]byte("head"), p...)
	}
	d := &TensorData{Size: int64(len(p)), ReadCloser: io.NopCloser(bytes.NewReader(p))}
	switch name {
	case "none":
		return nil, &fs.PathError{Op: "cat-tensor", Path: path, Err: fs.ErrNotExist}
	case "torn":
		d.Size++
	}
	return d, nil
}

func TestTensors(t *testing.T) {
	test := func(t *testing.T, c *Client) {
		f, err := c.Inspect(t.Context(), "runs/a/1/model.pt", InspectOptions{Stats: true, Artifact: true},
			nil, nil)
		if err != nil || f.Tensors[0].Stats == nil || f.Tensors[0].Stats.Mean != 0.5 || f.Artifact != "mi2" {
			t.Errorf("%+v, %v", f, err)
		}
		o := OutlineOptions{Path: "x/y", Prefix: "ä.&/", Exact: true, Most: 7, Names: 9}
		v, err := c.Verify(t.Context(), "a/../x", "b", func(Progress) {})
		if err != nil || v.A != "x" || v.B != "b" || v.Share != 0.5 {
			t.Errorf("%+v, %v", v, err)
		}
		out, err := c.Outline(t.Context(), o)
		if err != nil || out.File.Path != "x/y" || out.Count != 3 || out.TensorBytes != 8 || out.Below != 2 ||
			out.Listed[0].Name != fmt.Sprintf("%+v", o) || out.Listed[0].Shared != 2 ||
			out.Level[0].Name != "a." || out.Owner(out.Level[0].Tensor) != nil {
			t.Fatalf("%+v, %v", out, err)
		}
		if m := out.Owner(&out.Listed[0]); m == nil || m.Path != "first" {
			t.Errorf("%+v", m)
		}
		for _, npy := range []bool{false, true} {
			d, err := c.Tensor(t.Context(), "x:y", "wäf/1", npy)
			if err != nil {
				t.Fatal(err)
			}
			p, err := io.ReadAll(d)
			d.Close()
			if err != nil || int64(len(p)) != d.Size || bytes.HasPrefix(p, []byte("head")) != npy ||
				!bytes.HasSuffix(p, []byte("wäf/1")) {
				t.Errorf("%d bytes of %d, %v", len(p), d.Size, err)
			}
		}
		if _, err := c.Tensor(t.Context(), "x", "none", false); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		d, err := c.Tensor(t.Context(), "x", "torn", false)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if n, err := io.Copy(io.Discard, d); !errors.Is(err, cas.ErrCorrupt) || n != d.Size-1 {
			t.Errorf("a tensor that ends early: %d bytes, %v", n, err)
		}
	}
	eachWay(t, Mount{}, func() Services { return allOf(loom{newShelf()}) }, test)
}
