package artifacts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/canonical"
	"ckptfs/formats/detect"
	index "ckptfs/index/artifacts"
	"ckptfs/index/chunks"
)

// bucket is a table's in memory.
type bucket map[string][]byte

func (b bucket) Get(key []byte) ([]byte, error) { return b[string(key)], nil }

func (b bucket) Write(pairs []chunks.Pair) error {
	for _, p := range pairs {
		if p.Value == nil {
			delete(b, string(p.Key))
		} else {
			b[string(p.Key)] = p.Value
		}
	}
	return nil
}

func (b bucket) Scan(prefix []byte, f func(key, value []byte) error) error {
	for k, v := range b {
		if bytes.HasPrefix([]byte(k), prefix) {
			if err := f([]byte(k), v); err != nil {
				return err
			}
		}
	}
	return nil
}

// file is a File in memory.
type file struct {
	state State
	data  []byte
	key   uint64
	path  string
	pins  int
	used  int
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.data).ReadAt(p, off)
}
func (f *file) Key() uint64           { return f.key }
func (f *file) Path() string          { return f.path }
func (f *file) Pin()                  { f.pins++ }
func (f *file) Unpin()                { f.pins-- }
func (f *file) State() (State, error) { return f.state, nil }

func (f *file) Use(fits func(*formats.Layout) error) (*formats.Layout, State, error) {
	l, err := detect.Detect(bytes.NewReader(f.data), int64(len(f.data)))
	if err == nil {
		err = fits(l)
	}
	if err == nil && f.state.Written {
		err = ErrBeingWritten
	}
	if err != nil {
		return nil, State{}, err
	}
	f.used++
	return l, f.state, nil
}

func (f *file) Done() (State, error) {
	f.used--
	return f.state, nil
}

// files are a Tree.
type files []*file

func (t files) find(is func(*file) bool) *file {
	for _, f := range t {
		if is(f) {
			f.pins++
			return f
		}
	}
	return nil
}

func (t files) At(path string) (File, error) {
	if f := t.find(func(f *file) bool { return f.path == path }); f != nil {
		return f, nil
	}
	return nil, unix.ENOENT
}

func (t files) ByKey(key uint64) File {
	if f := t.find(func(f *file) bool { return f.key == key }); f != nil {
		return f
	}
	return nil
}

func (t files) Walk(_ context.Context, each func(string, File) error) error {
	for _, f := range t {
		if err := each(f.path, f); err != nil {
			return err
		}
	}
	return nil
}

// sample is one of the files of formats/testdata/same, packed.
func sample(t *testing.T, path string) *file {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../formats/testdata/same", path))
	if err != nil {
		t.Fatal(err)
	}
	return &file{data: data, path: path, key: uint64(len(data)),
		state: State{Gen: 7, Manifest: cas.Sum(data)}}
}

func of(t *testing.T, all ...*file) *Artifacts {
	t.Helper()
	t.Cleanup(func() {
		for _, f := range all {
			if f.pins != 0 || f.used != 0 {
				t.Errorf("%s has %d pins and is used by %d", f.path, f.pins, f.used)
			}
		}
	})
	return New(Options{Table: index.New(bucket{}), Tree: files(all), Now: time.Now,
		Log: func(slog.Level, string, ...any) {}})
}

func TestOf(t *testing.T) {
	pt, npz := sample(t, "model.pt"), sample(t, "model.npz")
	npz.state.Manifest = cas.Hash{}
	a := of(t, pt, npz)
	id, err := a.Of(t.Context(), pt)
	if err != nil {
		t.Fatal(err)
	}
	pt.path = "moved.pt" // what the index has is wrong
	f, err := a.Find(t.Context(), id)
	if f != File(pt) || err != nil {
		t.Fatal(f, err)
	}
	f.Unpin()
	if got, err := a.Of(t.Context(), npz); got != id || err != nil {
		t.Error(got, err)
	}
	// those that are not packed come first
	if f, err = a.Find(t.Context(), id); f != File(npz) || err != nil {
		t.Fatal(f, err)
	}
	f.Unpin()
	npz.state.Gen++
	if _, ok, err := a.Known(npz); ok || err != nil {
		t.Error("known of other bytes:", ok, err)
	}
	npz.state.Written = true
	if _, err := a.Of(t.Context(), npz); !errors.Is(err, canonical.ErrNoID) {
		t.Error("of a file that is written:", err)
	}
	if !a.Has(pt.key, 7, pt.state.Manifest, id) || a.Has(npz.key, 8, cas.Hash{}, id) ||
		!a.Has(99, 1, pt.state.Manifest, id) {
		t.Error("who has it")
	}
	if err := a.Forget(func(_ []cas.Hash, locs []cas.Location) error {
		clear(locs)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Find(t.Context(), id); err != unix.ENOENT {
		t.Error("forgotten:", err)
	}
}

// Who renames a file of a known id makes others search the tree for it: for a part of the time only.
func TestSearchRests(t *testing.T) {
	f := sample(t, "model.pt")
	a := of(t, f)
	at := time.Unix(1_000_000, 0)
	a.o.Now = func() time.Time { at = at.Add(time.Second); return at }
	id, err := a.Of(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	find := func() error {
		f, err := a.Find(t.Context(), id)
		if err == nil {
			f.Unpin()
		}
		return err
	}
	f.path = "b"
	if err := find(); err != nil {
		t.Error("not found under its new name:", err)
	}
	f.path = "a" // what was mended is wrong again
	next := a.search.next
	if err := find(); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("searched again at once: %v", err)
	}
	if !a.search.next.Equal(next) {
		t.Error("being refused puts the next search off")
	}
	at = next
	if err := find(); err != nil {
		t.Error("not found after a while:", err)
	}
}

// A read in the background ends when the file is another, or a command asked and was faster.
func TestPacedIsOvertaken(t *testing.T) {
	f := sample(t, "model.pt")
	a := of(t, f)
	turns := 0
	b := a.Background(func(ctx context.Context) error { return ctx.Err() },
		func(context.Context) (func(), error) { turns++; return func() { turns-- }, nil },
		func(string) error { return nil })
	read := func(p *paced) error {
		_, err := p.ReadAt(make([]byte, 10), 0)
		p.pause()
		return err
	}
	p := &paced{b: b, ctx: t.Context(), f: f, gen: 7}
	if err := read(p); err != nil {
		t.Error(err)
	}
	if err := read(&paced{b: b, ctx: t.Context(), f: f, gen: 8}); !errors.Is(err, errOvertaken) {
		t.Error("of another generation:", err)
	}
	if err := b.Identify(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := a.Known(f); !ok || err != nil {
		t.Error("not computed:", err)
	}
	if err := read(p); !errors.Is(err, errOvertaken) {
		t.Error("of a file whose id is known:", err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := read(&paced{b: b, ctx: stopped, f: f, gen: 7}); !errors.Is(err, context.Canceled) {
		t.Error("after the end:", err)
	}
	if turns != 0 {
		t.Errorf("%d turns have no end", turns)
	}
}

// What has no id is noted, and not looked at again.
func TestNoID(t *testing.T) {
	f := &file{data: []byte("no tensors"), path: "text", key: 1, state: State{Manifest: cas.Sum(nil)}}
	a := of(t, f)
	b := a.Background(func(context.Context) error { return nil },
		func(context.Context) (func(), error) { return func() {}, nil },
		func(string) error { return nil })
	if !a.Wants(f.state.Manifest) {
		t.Error("not wanted")
	}
	if err := b.Identify(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if a.Wants(f.state.Manifest) {
		t.Error("wanted again")
	}
}

var _ io.ReaderAt = (*paced)(nil)
