package names

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas/remote/record"
)

// parts gives a list in parts of n, some of them empty.
func parts(list []record.Entry, n int) Parts {
	empty := false
	return func() ([]record.Entry, error) {
		if empty = !empty; empty && len(list) > 0 {
			return []record.Entry{}, nil
		}
		part := list[:min(n, len(list))]
		if list = list[len(part):]; len(part) == 0 {
			return nil, nil
		}
		return part, nil
	}
}

// Each gives what Paths gives, however the lists are cut into parts.
func TestEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var lists [][]record.Entry
		var cut []Parts
		for i := range rapid.IntRange(0, 4).Draw(t, "lists") {
			var list []record.Entry
			for range rapid.IntRange(0, 9).Draw(t, "entries") {
				list = append(list, record.Entry{Origin: alice, Version: int64(len(list) + 10*i + 1),
					Path: "runs/" + rapid.SampledFrom([]string{"a", "a/b", "a-b", "b", "c"}).Draw(t, "path")})
			}
			slices.SortStableFunc(list, func(a, b record.Entry) int {
				return record.ComparePaths(a.Path, b.Path)
			})
			lists = append(lists, list)
			cut = append(cut, parts(list, rapid.IntRange(1, 4).Draw(t, "part")))
		}
		got, want := map[string]map[int64]bool{}, map[string]map[int64]bool{}
		collect := func(of map[string]map[int64]bool, path string, held []*record.Entry) {
			if of[path] != nil {
				t.Fatalf("%s twice", path)
			}
			of[path] = map[int64]bool{}
			for _, e := range held {
				of[path][e.Version] = true
			}
		}
		var order []string
		err := Each(cut, func(path string, held []*record.Entry) error {
			order = append(order, path)
			collect(got, path, held)
			return nil
		})
		for path, held := range Paths(lists...) {
			collect(want, path, held)
		}
		if err != nil || !reflect.DeepEqual(got, want) || !slices.IsSortedFunc(order, record.ComparePaths) {
			t.Fatalf("%v, want %v; %v; %v", got, want, order, err)
		}
	})
}

func TestEachEnds(t *testing.T) {
	bad := errors.New("bad")
	one := []record.Entry{{Path: "runs/a"}}
	fails := func() ([]record.Entry, error) { return nil, bad }
	calls := 0
	then := func() ([]record.Entry, error) {
		if calls++; calls > 1 {
			return nil, bad
		}
		return one, nil
	}
	never := func(string, []*record.Entry) error { return fmt.Errorf("called") }
	if err := Each([]Parts{parts(one, 1), fails}, never); err != bad {
		t.Error(err)
	}
	if err := Each([]Parts{then}, never); err != bad {
		t.Error(err)
	}
	if err := Each([]Parts{parts(one, 1)}, func(string, []*record.Entry) error { return bad }); err != bad {
		t.Error(err)
	}
}
