package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"testing"
)

// crowd is a shelf with files of tensors that come in passes.
type crowd struct {
	*shelf
	fail error
}

const crowded = 10_000

func (c crowd) Inspect(_ context.Context, path string, _ InspectOptions, tensors Passes,
	progress func(Progress)) (*File, error) {
	if c.fail != nil && path == "none" {
		return nil, c.fail
	}
	f := &File{Path: path, Format: "safetensors", Notes: []string{"a note"}}
	for i := 0; i < crowded; i += 1000 {
		some := make([]Tensor, 1000)
		for k := range some {
			some[k] = Tensor{Name: fmt.Sprint(i + k), Shape: []int64{1}, SharedWith: []string{}}
		}
		if tensors == nil {
			f.Tensors = append(f.Tensors, some...)
		} else if err := tensors(some); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(Progress{DoneFiles: i})
		}
	}
	return f, c.fail
}

func (c crowd) Show(ctx context.Context, path string, tensors Passes) (*File, error) {
	return c.Inspect(ctx, path, InspectOptions{}, tensors, nil)
}

func (c crowd) Verify(context.Context, string, string, func(Progress)) (*Verified, error) {
	return nil, nil
}
func (c crowd) Outline(context.Context, OutlineOptions) (*Outline, error) { return nil, nil }

func (c crowd) Tensor(context.Context, string, string, bool) (*TensorData, error) { return nil, nil }

// TestPasses: tensors that the volume tells in passes arrive in order, whether they are wanted in passes or
// not; so does an error that comes after some of them.
func TestPasses(t *testing.T) {
	lost := &fs.PathError{Op: "show", Path: "x", Err: fs.ErrNotExist}
	for _, fail := range []error{nil, lost} {
		c := InProcess(NewHandler(allOf(crowd{newShelf(), fail}), Mount{}))
		for what, ask := range map[string]func(Passes) (*File, error){
			"show": func(take Passes) (*File, error) { return c.Show(t.Context(), "x", take) },
			"inspect": func(take Passes) (*File, error) {
				return c.Inspect(t.Context(), "x", InspectOptions{Stats: true}, take, func(Progress) {})
			},
		} {
			var got []Tensor
			for _, take := range []Passes{nil, func(some []Tensor) error {
				got = append(got, some...)
				return nil
			}} {
				f, err := ask(take)
				if fail != nil {
					if !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				if err != nil || f.Path != "x" || len(f.Notes) != 1 {
					t.Fatalf("%s: %+v, %v", what, f, err)
				}
				if take == nil {
					got = f.Tensors
				}
				if len(got) != crowded || got[crowded-1].Name != fmt.Sprint(crowded-1) {
					t.Errorf("%s: %d tensors", what, len(got))
				}
				got = nil
			}
		}
		if _, err := c.Show(t.Context(), "none", nil); fail != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
}

// apart is a volume whose differences come in parts.
type apart struct {
	*shelf
	Models
	whole bool // it was asked for them in one piece
}

func (p *apart) Diff(_ context.Context, o DiffOptions, parts Differences, _ func(Progress)) (*Diff, error) {
	d := &Diff{A: o.A, B: o.B, TensorLists: NoTensors()}
	p.whole = parts == nil
	for i := range 3 {
		d.Changed = append(d.Changed, TensorChange{Name: fmt.Sprint(i)})
		d.Added = append(d.Added, TensorRef{Name: fmt.Sprint(i)})
		if parts == nil || i == 2 {
			continue
		}
		if err := parts(d.TensorLists); err != nil {
			return nil, err
		}
		d.TensorLists = NoTensors()
	}
	return d, p.fail
}

// TestDifferences: differences that the volume tells in parts arrive in order, and so does an error that
// comes after some of them. An older client gets them in one piece.
func TestDifferences(t *testing.T) {
	v := &apart{shelf: newShelf()}
	h := NewHandler(allOf(v), Mount{})
	c := InProcess(h)
	var got TensorLists
	for _, parts := range []Differences{nil, func(l TensorLists) error {
		got.add(&l)
		return nil
	}} {
		d, err := c.Diff(t.Context(), DiffOptions{A: "a", B: "b"}, parts, nil)
		if err != nil || d.A != "a" || d.B != "b" || v.whole {
			t.Fatalf("%+v, %v, in one piece %v", d, err, v.whole)
		}
		if parts == nil {
			got = d.TensorLists
		} else if len(d.Changed) > 0 {
			t.Errorf("%d twice", len(d.Changed))
		}
		if len(got.Changed) != 3 || len(got.Added) != 3 || got.Changed[2].Name != "2" ||
			got.Added[0].Name != "0" {
			t.Errorf("%+v", got)
		}
		got = TensorLists{}
	}
	d, err := follow[Diff](t.Context(), c, "diff", url.Values{"a": {"a"}, "b": {"b"}}, nil)
	if err != nil || !v.whole || len(d.Changed) != 3 {
		t.Errorf("%+v, %v, in one piece %v", d, err, v.whole)
	}
	v.fail = &fs.PathError{Op: "diff", Path: "a", Err: fs.ErrNotExist}
	if _, err := c.Diff(t.Context(), DiffOptions{A: "a", B: "b"}, nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
