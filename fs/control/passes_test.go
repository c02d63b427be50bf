package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
