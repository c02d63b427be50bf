package linked

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/fs/control"
)

// tree is files, and where links lead, by path; what is above them are folders.
type tree map[string]string

func (t tree) Entry(_ context.Context, p string) (*control.Entry, error) {
	e := &control.Entry{Name: control.Name(path.Base(p)), Mode: unix.S_IFDIR}
	if to, ok := t[p]; ok && to != "" {
		e.Mode, e.Target = unix.S_IFLNK, control.Name(to)
		return e, nil
	} else if ok {
		e.Mode = unix.S_IFREG
		return e, nil
	}
	for name := range t {
		if strings.HasPrefix(name, p+"/") {
			return e, nil
		}
	}
	return nil, &fs.PathError{Op: "entry", Path: p, Err: unix.ENOENT}
}

func (t tree) Entries(ctx context.Context, dir string, some func([]control.Entry) error) error {
	seen := map[string]bool{}
	for name := range t {
		rest, ok := strings.CutPrefix(name, dir+"/")
		first, _, _ := strings.Cut(rest, "/")
		if !ok || seen[first] {
			continue
		}
		seen[first] = true
		e, err := t.Entry(ctx, path.Join(dir, first))
		if err != nil {
			return err
		}
		if err := some([]control.Entry{*e}); err != nil {
			return err
		}
	}
	return nil
}

func TestOutside(t *testing.T) {
	hub := tree{
		"hub/blobs/a": "", "hub/blobs/b": "", "hub/blobs/c": "", "other/x": "", "other/sub/y": "",
		"hub/r1/a": "../blobs/a", "hub/r1/a2": "../blobs/a", "hub/r1/sub/b": "/mnt/x/hub/blobs/b",
		"hub/r1/inside": "sub", "hub/r1/up": "..", "hub/r1/nowhere": "gone", "hub/r1/loop": "loop",
		"hub/r1/out": "/etc", "hub/r1/beside": "/mnt/xy/hub/blobs/c", "hub/r1/far": "../../../../etc",
		"hub/r1/self": "/mnt/x", "hub/r1/virtual": "../../.ckptfs/latest/a",
		"hub/r2/chain": "../r1/a", "hub/r2/folder": "../../other", "hub/r2/in": "../../other/sub/y",
		"serve/now": "../hub/r1/", "serve/odd": "now/../r2/./chain", "deep/x/y/z": "", "deep/l": "x/y",
		"odd/up": "../deep/l/../y/z", "round/a": "../round2", "round2/b": "../round",
	}
	m := &mountinfo.Info{Mountpoint: "/mnt/x", Root: "/"}
	for _, c := range []struct {
		at   string
		want []string
	}{
		{"hub/r1", []string{"hub/blobs/a", "hub/blobs/b"}},
		{"hub/r2", []string{"hub/blobs/a", "other"}},
		{"hub", []string{"other"}},
		{"hub/r1/a", nil}, // who names a link has it followed before
		{"other", nil},
		{"serve", []string{"hub/blobs/a", "hub/blobs/b", "hub/r1"}},
		{"odd", []string{"deep/x/y/z"}},
		{"round", []string{"round2"}},
		{"", nil},
	} {
		got, err := Outside(t.Context(), hub, &place.Place{Path: c.at, Mount: m})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.at, got, err, c.want)
		}
	}
	got, err := Outside(t.Context(), hub, &place.Place{Path: "hub/r1"}) // a store that is not mounted
	if want := []string{"hub/blobs/a"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Outside(t.Context(), hub, &place.Place{Path: "gone"}); err == nil {
		t.Error("what is not there has no links")
	}
}
