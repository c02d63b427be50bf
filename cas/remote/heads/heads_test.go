package heads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

var remoteID = record.ID{1}

// kept is a Cache in memory.
type kept map[record.Writer]Kept

func (k kept) Heads(f func(w record.Writer, v bucket.Version, p []byte) error) error {
	for w, one := range k {
		if err := f(w, one.Version, one.Bytes); err != nil {
			return err
		}
	}
	return nil
}

func (k kept) SetHeads(all map[record.Writer]Kept) error {
	for w, one := range all {
		if one.Bytes == nil && one.Version == "" {
			delete(k, w)
		} else {
			k[w] = one
		}
	}
	return nil
}

// counted counts requests.
type counted struct {
	bucket.Mem
	gets atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	r io.ReadCloser, info bucket.Info, err error) {
	c.gets.Add(1)
	return c.Mem.Get(ctx, key, off, n, unless)
}

// watched tells of each Get.
type watched struct {
	bucket.Bucket
	got func(key string)
}

func (w *watched) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	w.got(key)
	return w.Bucket.Get(ctx, key, off, n, unless)
}

type rig struct {
	*testing.T
	*counted
	cache kept
	*Heads
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, counted: &counted{}, cache: kept{}}
	r.again()
	return r
}

// again is another process.
func (r *rig) again() {
	r.Helper()
	h, err := Open(r.counted, remoteID, r.cache)
	if err != nil {
		r.Fatal(err)
	}
	r.Heads = h
}

// watch is again, with a bucket that tells of each Get before it.
func (r *rig) watch(got func(key string)) {
	r.Helper()
	h, err := Open(&watched{r.counted, got}, remoteID, r.cache)
	if err != nil {
		r.Fatal(err)
	}
	r.Heads = h
}

func (r *rig) put(key string, p []byte) {
	r.Helper()
	if _, err := r.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
		r.Fatal(err)
	}
}

// entry is an inline file with a version as its byte.
func entry(w record.Writer, path string, version int64) record.Entry {
	return record.Entry{Path: path, Origin: w, Version: version, Mode: 0o644,
		File: &record.File{Size: 1, Inline: string(rune('0' + version))}}
}

// commit makes a head with tables, newest first, and a tail; each is of paths with versions: "runs/a/1 3".
func (r *rig) commit(w record.Writer, sequence int64, tail string, tables ...string) {
	r.Helper()
	h := &record.Head{Remote: remoteID, Instance: record.ID{2}, Commit: record.ID{byte(sequence), 1},
		Sequence: sequence, Clock: 9}
	entries := func(text string) (all []record.Entry) {
		for one := range strings.SplitSeq(text, ",") {
			var path string
			var version int64
			if _, err := fmt.Sscanf(one, "%s %d", &path, &version); err == nil {
				all = append(all, entry(w, path, version))
			}
		}
		return all
	}
	for i, text := range tables {
		id := record.ID{byte(sequence), byte(i), 7, byte(len(w))}
		p, t, err := record.EncodeTable(w, id, entries(text))
		if err != nil {
			r.Fatal(err)
		}
		r.put(record.ClassTable.Key(id), p)
		h.Tables = append(h.Tables, t)
	}
	h.Tail = entries(tail)
	p, err := h.Encode(w)
	if err != nil {
		r.Fatal(err)
	}
	r.put(record.HeadKey(w), p)
}

func (r *rig) refreshed(want bool) {
	r.Helper()
	if changed, err := r.Refresh(context.Background()); changed != want || err != nil {
		r.Fatalf("refreshed: %v, %v", changed, err)
	}
}

func (r *rig) below(path, want string) {
	r.Helper()
	all, err := r.Below(context.Background(), path)
	if err != nil {
		r.Fatal(err)
	}
	var got []string
	for _, o := range all {
		for _, e := range o.Entries {
			got = append(got, fmt.Sprint(o.Writer, " ", e.Path, " ", e.Version))
		}
	}
	if s := strings.Join(got, "\n"); s != want {
		r.Errorf("below %s:\n%s\nwant:\n%s", path, s, want)
	}
}

const (
	anna record.Writer = "anna.00000001"
	bert record.Writer = "bert.00000002"
)

func TestBelow(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 3, "runs/a/1 5", "runs/a/1 4,runs/a/2 3", "runs/a/1 1,runs/a/1/x 1,runs/a-b 2,runs/b 1")
	r.commit(bert, 1, "runs/a/2 1")
	r.refreshed(true)
	r.below("runs/a", `anna.00000001 runs/a/1 5
anna.00000001 runs/a/1/x 1
anna.00000001 runs/a/2 3
bert.00000002 runs/a/2 1`)
	r.below("runs/a/1/x", "anna.00000001 runs/a/1/x 1")
	r.below("runs/c", "")
	gets := r.gets.Load()
	r.below("runs/b", "anna.00000001 runs/b 1")
	if r.gets.Load() != gets {
		t.Errorf("%d requests for what was read already", r.gets.Load()-gets)
	}
	if r.Clock() != 9 {
		t.Errorf("clock %d", r.Clock())
	}
}

// A short table takes one request, whatever is asked of it.
func TestShortTable(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "", "runs/a 1,runs/b 1")
	r.refreshed(true)
	gets := r.gets.Load()
	r.below("runs/b", "anna.00000001 runs/b 1")
	r.below("runs/a", "anna.00000001 runs/a 1")
	if n := r.gets.Load() - gets; n != 1 {
		t.Errorf("%d requests", n)
	}
}

// Of 1,000 writers a mount reads each head once, and whatever commits later once more: the requests of a day
// are those that publish, and a poll.
func TestManyWriters(t *testing.T) {
	const writers = 1000
	r := newRig(t)
	name := func(i int) record.Writer { return record.Writer(fmt.Sprintf("w.%08x", i)) }
	for i := range writers {
		r.commit(name(i), 1, fmt.Sprintf("runs/r%d 1", i))
	}
	r.put(record.HintKey, []byte("0123456789abcdef"))
	asked := func(what string, want int64, ask func(context.Context) (bool, error)) {
		t.Helper()
		before := r.gets.Load()
		if _, err := ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.gets.Load() - before; n != want {
			t.Errorf("%s: %d reads, want %d", what, n, want)
		}
	}
	asked("the first mount", 1+writers, r.Poll)
	asked("a poll", 1, r.Poll)
	for i := range 3 {
		r.commit(name(i), 2, fmt.Sprintf("runs/r%d 2", i))
	}
	r.put(record.HintKey, []byte("0123456789abcdeg"))
	asked("a poll after three commits", 1+3, r.Poll)
	r.again()
	asked("the next mount", 1, r.Poll)
	if runs, err := r.Runs(t.Context()); err != nil || len(runs) != writers {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}

// Runs of several writers are contended, and those that were folded, of which that is not known.
func TestContended(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a/1 1,runs/b/1 1", "runs/a/2 1,runs/c/1 1")
	r.commit(bert, 2, "runs/b/1 1", "runs/c/2 1,runs/d/1 1")
	r.refreshed(true)
	contended := func(want ...string) {
		t.Helper()
		if got, err := r.Contended(context.Background()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	contended("runs/b", "runs/c")
	r.commit(record.ArchiveWriter, 1, "runs/d/1 1,runs/e/1 1")
	r.refreshed(true)
	contended("runs/b", "runs/c", "runs/d", "runs/e")
}

func TestRefresh(t *testing.T) {
	r := newRig(t)
	r.refreshed(false)
	r.commit(anna, 1, "runs/a 1")
	r.commit(bert, 1, "runs/b 1")
	r.refreshed(true)
	gets := r.gets.Load()
	r.refreshed(false)
	r.again()
	r.refreshed(false)
	r.below("runs", "anna.00000001 runs/a 1\nbert.00000002 runs/b 1")
	if r.gets.Load() != gets {
		t.Errorf("%d heads were read again", r.gets.Load()-gets)
	}
	r.commit(bert, 2, "runs/b 2")
	r.refreshed(true)
	if r.gets.Load() != gets+1 {
		t.Errorf("%d heads were read for one", r.gets.Load()-gets)
	}
	r.below("runs", "anna.00000001 runs/a 1\nbert.00000002 runs/b 2")
}

func TestPoll(t *testing.T) {
	r := newRig(t)
	poll := func(want bool) {
		t.Helper()
		if changed, err := r.Poll(context.Background()); changed != want || err != nil {
			t.Fatalf("%v, %v", changed, err)
		}
	}
	r.commit(anna, 1, "runs/a 1")
	poll(true) // there is no hint yet
	r.put(record.HintKey, []byte("0123456789abcdef"))
	poll(false)
	r.commit(anna, 2, "runs/a 2")
	gets := r.gets.Load()
	poll(false) // it has not said so
	if r.gets.Load() != gets+1 {
		t.Errorf("%d requests", r.gets.Load()-gets)
	}
	r.put(record.HintKey, []byte("0123456789abcdeg"))
	poll(true)
}

// One writer's damaged head changes nothing of the others, and its own is as it was.
func TestProblems(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 2, "runs/a 1")
	r.commit(bert, 1, "runs/b 1")
	r.refreshed(true)
	tookOut := func(version int64, want bool) {
		t.Helper()
		if got := r.TookOut(record.Replaced{Writer: anna, Version: version}); got != want {
			t.Errorf("took out version %d of %d: %v", version, r.Head(anna).Clock, got)
		}
	}
	clock := r.Head(anna).Clock
	tookOut(clock, true)
	tookOut(clock+1, false)
	bad := func(what, want string, damage func()) {
		t.Helper()
		damage()
		defer tookOut(clock, false)
		if _, err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		p := r.Problems()
		if len(p) != 1 || !errors.Is(p[anna], cas.ErrCorrupt) && !errors.Is(p[anna], bucket.ErrTooLarge) {
			t.Errorf("%s: %v", what, p)
		}
		r.below("runs", want)
	}
	both := "anna.00000001 runs/a 1\nbert.00000002 runs/b 1"
	bad("garbage", both, func() { r.put(record.HeadKey(anna), []byte("garbage")) })
	bad("too large", both, func() { r.put(record.HeadKey(anna), make([]byte, record.MaxHead+1)) })
	bad("another remote's", both, func() {
		h := &record.Head{Remote: record.ID{9}, Instance: record.ID{2}, Commit: record.ID{3}, Sequence: 7}
		p, err := h.Encode(anna)
		if err != nil {
			t.Fatal(err)
		}
		r.put(record.HeadKey(anna), p)
	})
	bad("older", both, func() { r.commit(anna, 1, "runs/a 1") })
	bad("gone", both, func() {
		if err := r.Delete(context.Background(), []string{record.HeadKey(anna)}); err != nil {
			t.Fatal(err)
		}
	})
	r.commit(anna, 3, "runs/a 3")
	r.refreshed(true)
	if p := r.Problems(); len(p) != 0 {
		t.Errorf("after it was mended: %v", p)
	}
	if w := r.Writers(); !slices.Equal(w, []record.Writer{anna, bert}) {
		t.Errorf("writers %v", w)
	}
	// What may have been folded while nobody looked is no problem.
	p, err := (&record.Head{Remote: remoteID, Instance: record.ID{2}, Commit: record.ID{3}, Sequence: 1,
		Time: int64(idle)}).Encode(record.ArchiveWriter)
	if err != nil {
		t.Fatal(err)
	}
	r.put(record.HeadKey(record.ArchiveWriter), p)
	if err := r.Delete(context.Background(), []string{record.HeadKey(anna)}); err != nil {
		t.Fatal(err)
	}
	r.refreshed(true)
	if p := r.Problems(); len(p) != 0 {
		t.Errorf("after it was folded: %v", p)
	}
	r.below("runs", "bert.00000002 runs/b 1")
	if r.TookOut(record.Replaced{Writer: anna, Version: 1}) {
		t.Error("a head that is gone shows that a version was taken out")
	}
}

// hiding is a bucket that lists nothing while it is hidden.
type hiding struct {
	bucket.Bucket
	hidden bool
}

func (b *hiding) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	if b.hidden {
		return func(func(bucket.Info, error) bool) {}
	}
	return b.Bucket.List(ctx, prefix, after)
}

// A head that is there again as it was read, with the ETag that it had, is no problem any more.
func TestThereAgain(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a 1")
	b := &hiding{Bucket: r.counted}
	h, err := Open(b, remoteID, kept{})
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []bool{false, true, false} {
		b.hidden = hidden
		if _, err := h.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		if p := h.Problems(); len(p) > 0 != hidden {
			t.Errorf("hidden %v: %v", hidden, p)
		}
	}
}

// The archive is read after the heads that were folded into it.
func TestArchiveIsLast(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a 1")
	r.commit(record.ArchiveWriter, 1, "runs/b 1")
	var order []string
	r.watch(func(key string) { order = append(order, key) })
	r.refreshed(true)
	want := []string{record.HeadKey(anna), record.HeadKey(record.ArchiveWriter)}
	if !slices.Equal(order, want) {
		t.Errorf("read %v", order)
	}
}

// mirrored gives tables with a byte changed, unless it is asked past the mirror.
type mirrored struct {
	bucket.Bucket
	wrong int // in the table
}

func (m *mirrored) Past() bucket.Bucket { return m.Bucket }

func (m *mirrored) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	r, info, err := m.Bucket.Get(ctx, key, off, n, unless)
	class, _, _ := record.ParseObject(key)
	if err != nil || class != record.ClassTable {
		return r, info, err
	}
	p, err := io.ReadAll(r)
	if at := m.wrong - int(off); at >= 0 && at < len(p) {
		p = slices.Clone(p)
		p[at] ^= 1
	}
	return io.NopCloser(bytes.NewReader(p)), info, err
}

// What a mirror has wrong of a table is read past it.
func TestTableOfMirror(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a 2", "runs/a 1,runs/b 1")
	r.refreshed(true)
	n := int(r.Head(anna).Tables[0].Len)
	for i := range n {
		h, err := Open(&mirrored{r.counted, i}, remoteID, kept{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := h.Below(t.Context(), "runs"); err != nil || len(all) != 1 || len(all[0].Entries) != 2 {
			t.Fatalf("byte %d of %d: %v, %v", i, n, all, err)
		}
	}
}

// A table that was damaged is an error, and no wrong entry.
func TestDamagedTable(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a 2", "runs/a 1,runs/b 1")
	r.refreshed(true)
	key := record.ClassTable.Key(r.Head(anna).Tables[0].ID)
	p, _, err := bucket.Read(context.Background(), r.counted, key, 1<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range p {
		q := slices.Clone(p)
		q[i] ^= 1
		r.put(key, q)
		r.again()
		_, err := r.Below(context.Background(), "runs")
		if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	r.put(key, p[1:])
	r.again()
	if _, err := r.Below(context.Background(), "runs"); err == nil {
		t.Error("a table that was cut was read")
	}
}

// Of a short table that is damaged in one block, the rest is read.
func TestDamagedBlock(t *testing.T) {
	r := newRig(t)
	var all []string
	for i := range 3000 {
		all = append(all, fmt.Sprintf("runs/a/%04d/%s 1", i, strings.Repeat("x", 40)))
	}
	slices.Sort(all)
	r.commit(anna, 1, "", strings.Join(all, ","))
	r.refreshed(true)
	table := r.Head(anna).Tables[0]
	d, err := r.directory(t.Context(), anna, table)
	if err != nil || len(d.Blocks) < 3 || table.Len > readWhole {
		t.Fatalf("%d bytes: %v", table.Len, err)
	}
	key := record.ClassTable.Key(table.ID)
	p, _, err := bucket.Read(t.Context(), r.counted, key, 1<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	b := d.Blocks[len(d.Blocks)-1]
	p[b.Off+b.Len/2] ^= 1
	r.put(key, p)
	r.again()
	if of, err := r.Below(t.Context(), "runs/a/0000"); err != nil || len(of) != 1 {
		t.Errorf("%v: %v", of, err)
	}
	if _, err := r.Runs(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.Below(t.Context(), "runs/a/2999"); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("the damaged block: %v", err)
	}
}
