package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
)

// attic is a shelf with files: a folder of a thousand, and one file that begins with a hole. One called
// "torn" ends early.
type attic struct{ *shelf }

func (a attic) Entry(_ context.Context, path string) (*Entry, error) {
	if path == "gone" {
		return nil, &fs.PathError{Op: "look at", Path: path, Err: fs.ErrNotExist}
	}
	return &Entry{Name: Name(path), Mode: 0o120777, Size: 1 << 40, Target: "bad\xff", Ino: 1 << 63,
		Mtime: time.Unix(1, 2)}, nil
}

func (a attic) Entries(_ context.Context, path string, some func([]Entry) error) error {
	if path == "empty" {
		return nil
	}
	for i := range 10 {
		part := make([]Entry, 100)
		for k := range part {
			part[k].Name = Name(fmt.Sprintf("%s-%d\xff\"", path, 100*i+k))
		}
		if err := some(part); err != nil {
			return err
		}
	}
	return nil
}

func (a attic) Bytes(_ context.Context, path string, off int64) (*Stretch, error) {
	const hole, size = 1000, 3 << 20
	b := bytes.Repeat([]byte("tensor"), size/6)
	s := &Stretch{Off: min(max(off, hole), size)}
	s.Size, s.ReadCloser = size-s.Off, io.NopCloser(bytes.NewReader(b[s.Off:]))
	if path == "torn" {
		s.Size++
	}
	return s, nil
}

func (a attic) Attributes(_ context.Context, path string) ([]Attribute, error) {
	if path == "gone" {
		return nil, &fs.PathError{Op: "look at", Path: path, Err: fs.ErrNotExist}
	}
	return []Attribute{{Name: "user.a\xff", Value: []byte{0, 0xff}}, {Name: "user.b"}}, nil
}

func TestFiles(t *testing.T) {
	test := func(t *testing.T, c *Client) {
		attrs, err := c.Attributes(t.Context(), "a\xffb")
		if err != nil || len(attrs) != 2 || attrs[0].Name != "user.a\xff" ||
			string(attrs[0].Value) != "\x00\xff" {
			t.Errorf("%q, %v", attrs, err)
		}
		if _, err := c.Attributes(t.Context(), "gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of nothing: %v", err)
		}
		e, err := c.Entry(t.Context(), "a\xffb")
		if err != nil || e.Name != "a\xffb" || e.Target != "bad\xff" || e.Ino != 1<<63 ||
			!e.Mtime.Equal(time.Unix(1, 2)) {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := c.Entry(t.Context(), "gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		var all []Entry
		err = c.Entries(t.Context(), "d", func(some []Entry) error {
			all = append(all, some...)
			return nil
		})
		if err != nil || len(all) != 1000 || all[999].Name != "d-999\xff\"" {
			t.Errorf("%d entries, %v", len(all), err)
		}
		stop := errors.New("enough")
		if err := c.Entries(t.Context(), "d", func([]Entry) error { return stop }); err != stop {
			t.Error(err)
		}
		if err := c.Entries(t.Context(), "empty", func([]Entry) error { return stop }); err != nil {
			t.Error(err)
		}
		for _, off := range []int64{0, 1000, 2 << 20, 3 << 20, 4 << 20} {
			s, err := c.Bytes(t.Context(), "f", off)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(s)
			s.Close()
			want := min(max(off, 1000), 3<<20)
			if err != nil || s.Off != want || int64(len(b)) != s.Size ||
				!strings.HasPrefix("tensortensor"[want%6:], string(b[:min(6, len(b))])) {
				t.Errorf("at %d: %d bytes from %d, %v", off, len(b), s.Off, err)
			}
		}
		for _, part := range [][2]int64{{0, 1000}, {0, 1001}, {2000, 2000}, {2000, 2007}, {1 << 20, 3 << 20},
			{1 << 20, 4 << 20}, {3 << 20, 4 << 20}} {
			s, err := c.BytesUpTo(t.Context(), "f", part[0], part[1])
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(s)
			s.Close()
			off := max(part[0], 1000)
			want := max(0, min(part[1], 3<<20)-off)
			if err != nil || s.Off != off || s.Size != want || int64(len(b)) != want {
				t.Errorf("%d: %d bytes of %d from %d, %v", part, len(b), s.Size, s.Off, err)
			}
		}
		if _, err := c.BytesUpTo(t.Context(), "f", 2, 1); err == nil {
			t.Error("an end before the beginning")
		}
		s, err := c.Bytes(t.Context(), "torn", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := io.Copy(io.Discard, s); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("a file that ends early: %v", err)
		}
		if _, err := c.Bytes(t.Context(), "f", -1); err == nil {
			t.Error("an offset below zero")
		}
	}
	eachWay(t, Mount{}, func() Services { return allOf(attic{newShelf()}) }, test)
}
