package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
	"ckptfs/fs/control"
)

func (m *machine) deletedAre(at string, want ...string) []control.Deletion {
	m.t.Helper()
	found, err := m.Deleted(context.Background(), at)
	if err != nil {
		m.t.Fatal(err)
	}
	var got []string
	for _, d := range found.Names {
		got = append(got, d.Path)
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("deleted are %v, want %v", got, want)
	}
	return found.Names
}

func (m *machine) undeleted(at string, left ...string) *control.Undeleted {
	m.t.Helper()
	u, err := m.Undelete(context.Background(), at, nil)
	if err != nil {
		m.t.Fatalf("undelete %s: %v", at, err)
	}
	m.skipped("undelete", u.Skipped, left)
	return u
}

func (c *cloud) collect(grace time.Duration) sweep.Stats {
	c.t.Helper()
	s, err := sweep.Collect(context.Background(), &c.mu, sweep.Options{Remote: c.id.ID,
		Collector: "c.00000000",
		Grace:     grace, Now: time.Now})
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// A machine was away while the last names of a folder were deleted, until nobody says so any more. It has no
// stubs of them once it looks again. What it has the bytes of stays.
func TestDeletedLongAgo(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", bytesOf(1, 300<<10))
	a.put("runs/x/1/small", []byte("small"))
	a.put("runs/x/1/brought", bytesOf(9, 300<<10))
	a.put("runs/x/2/f", bytesOf(2, 300<<10))
	a.published("")
	looks(b)
	b.pulled("runs/x/1/brought")
	for _, p := range []string{"runs/x/1/f", "runs/x/1/small", "runs/x/1/brought"} {
		a.unlink(p)
	}
	a.rmdir("runs/x/1")
	a.published("")
	for i := range 3 { // each collection takes what the one before left bare
		a.put("runs/x/2/f", bytesOf(byte(3+i), 300<<10))
		a.published("")
		c.collect(0)
	}
	looks(b)
	if has := b.view(); has["runs/x/1/f"] != (shown{}) || has["runs/x/1/small"].has != "small" {
		t.Errorf("%v", has)
	}
	b.same("runs/x/1/brought", bytesOf(9, 300<<10))
	if d, err := b.Drop(context.Background(), "runs/x/1/brought", nil); err != nil || len(d.Skipped) != 1 ||
		!strings.Contains(d.Skipped[0].Reason, "others removed it") {
		t.Errorf("%+v, %v", d, err)
	}
}

// What a machine deleted, its own or another's, any machine brings back, with all of a step, for all. Then
// the collector keeps it.
func TestUndelete(t *testing.T) {
	c := newCloud(t)
	a, b, d := c.join("a"), c.join("b"), c.join("d")
	big := bytesOf(1, 300<<10)
	a.put("runs/x/1/f", big)
	a.put("runs/x/1/small", []byte("small"))
	a.put("runs/x/2/f", []byte("two"))
	a.published("")
	b.pulled("")
	before := time.Now()
	b.unlink("runs/x/1/f")
	b.unlink("runs/x/1/small")
	dir, name := b.dirOf("runs/x/1")
	err := b.Rmdir(dir, name)
	b.forget(dir)
	if err != nil {
		t.Fatal(err)
	}
	b.published("")
	a.unlink("runs/x/2/f") // its own
	a.published("")
	names := a.deletedAre("", "runs/x/1", "runs/x/1/f", "runs/x/1/small", "runs/x/2/f")
	if n := names[1]; !strings.HasPrefix(n.Writer, "b.") || n.Size != int64(len(big)) ||
		n.Time.Before(before.Add(-time.Second)) || n.Time.After(time.Now()) {
		t.Errorf("%+v", n)
	}
	c.collect(24 * time.Hour)
	a.deletedAre("runs/x/2", "runs/x/2/f")
	// A machine that has none of it, and one that did not know of the deletion.
	if u := d.undeleted("runs/x/1"); u.Names != 3 {
		t.Errorf("%+v", u)
	}
	d.same("runs/x/1/f", big)
	d.remoteIs("runs/x/1/f", "pushed")
	b.deletedAre("", "runs/x/2/f")
	b.undeleted("runs/x/2/f")
	b.same("runs/x/2/f", []byte("two"))
	c.collect(0)
	b.pulled("")
	b.same("runs/x/1/f", big)
	b.same("runs/x/1/small", []byte("small"))
	b.conflictsAre()
	a.deletedAre("")
	e := c.join("e")
	e.pulled("")
	e.same("runs/x/1/f", big)
	e.same("runs/x/2/f", []byte("two"))
	// What was brought back can be deleted again, by who deleted it before and by others.
	b.unlink("runs/x/1/f")
	b.published("")
	e.deletedAre("", "runs/x/1/f")
}

// A run whose folder was removed has a name again once a file in it is brought back, or was saved by who did
// not know: also on a machine that never saw the run. Nobody sees it when that goes, too.
func TestRemovedRunHasNames(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for i, p := range []string{"runs/x/1/f", "runs/y/1/f", "runs/z/1/f"} {
		a.put(p, bytesOf(byte(i), 300<<10))
	}
	a.published("")
	b.pulled("")
	for _, run := range []string{"runs/x", "runs/y", "runs/z"} {
		b.unlink(run + "/1/f")
		b.rmdir(run + "/1")
		b.rmdir(run)
	}
	a.put("runs/y/2/f", bytesOf(7, 300<<10))
	a.published("")
	b.published("")
	b.undeleted("runs/x/1/f")
	d := c.join("d")
	looks(d)
	got, want := d.names("runs"), []string{"x", "y"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	d.same("runs/x/1/f", bytesOf(0, 300<<10))
	d.same("runs/y/2/f", bytesOf(7, 300<<10))
	for _, p := range []string{"runs/x/1/f", "runs/y/2/f"} {
		a.fetched()
		a.unlink(p)
	}
	for _, p := range []string{"runs/x/1", "runs/y/2", "runs/x", "runs/y"} {
		a.rmdir(p)
	}
	a.published("")
	looks(d)
	if got := d.names("runs"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// A run that others removed goes from who has its folder of others, and published a name in it.
func TestRunRemovedElsewhere(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", bytesOf(1, 300<<10))
	a.published("")
	b.fetched()
	b.same("runs/x/1/f", bytesOf(1, 300<<10))
	b.put("runs/x/1/f", bytesOf(2, 300<<10))
	b.published("")
	a.fetched()
	a.removeAll("runs/x")
	a.published("")
	b.fetched()
	if got := b.names("runs"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// What was not deleted, and has its bytes in the remote alone, keeps them there.
func TestUndeleteBringsNothingElse(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	for i, p := range []string{"runs/x/1/f", "runs/x/2/f", "runs/y/1/f"} {
		a.put(p, bytesOf(byte(i), 300<<10))
	}
	a.published("")
	a.dropped("runs/x/1")
	a.dropped("runs/y")
	a.unlink("runs/x/2/f")
	if u := a.undeleted(""); u.Names != 1 || u.Bytes != 300<<10 {
		t.Errorf("%+v", u)
	}
	a.same("runs/x/2/f", bytesOf(1, 300<<10))
	a.remoteIs("runs/x/1/f", "remote")
	a.remoteIs("runs/y/1/f", "remote")
}

// bytesOf are n bytes that differ by seed and do not compress.
func bytesOf(seed byte, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// What is gone is named, with who deleted it and when; what nobody deleted is no name.
func TestUndeleteGone(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", bytesOf(2, 300<<10))
	a.published("")
	if _, err := b.Undelete(context.Background(), "runs/x/1/f", nil); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a name that is there: %v", err)
	}
	a.unlink("runs/x/1/f")
	a.published("")
	b.deletedAre("", "runs/x/1/f")
	for info := range c.mu.List(context.Background(), "", "") {
		if _, _, ok := record.ParseObject(info.Key); ok {
			c.mu.Delete(context.Background(), []string{info.Key})
		}
	}
	u, err := b.Undelete(context.Background(), "runs/x", nil)
	if err != nil || u.Names != 0 || len(u.Skipped) != 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	if why := u.Skipped[0].Reason; !strings.Contains(why, "a.") || !strings.Contains(why,
		"deleted it on 20") {
		t.Error(why)
	}
	garbage := record.ClassData.Key(record.ID{7})
	if _, err := c.mu.Put(context.Background(), garbage, bucket.Bytes([]byte("x")),
		bucket.Cond{}); err != nil {
		t.Fatal(err)
	}
	c.collect(0)
	b.deletedAre("") // the collector took what told of it
	if _, err := b.Undelete(context.Background(), "runs/x", nil); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v", err)
	}
	if _, err := b.Undelete(context.Background(), "elsewhere", nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v", err)
	}
}

// A removal that is not published yet is published first, and then undone.
func TestUndeleteAtOnce(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("f"))
	a.published("")
	a.unlink("runs/x/1/f")
	a.undeleted("runs/x/1/f")
	a.same("runs/x/1/f", []byte("f"))
	a.remoteIs("runs/x/1/f", "pushed")
}

// A run of which it could not be found out whether it holds names appears once the remote is reached again.
func TestRemovedRunUnread(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/y/1/f", []byte("f"))
	a.published("")
	b.pulled("")
	b.removeAll("runs/y")
	a.mkdir("runs/y/2")
	for i := range 300 {
		a.write(fmt.Sprintf("runs/y/2/%d", i), bytesOf(byte(i), record.MaxInline))
	}
	a.published("")
	b.published("")
	engine := &ragged{Bucket: &c.mu, most: 200 << 10}
	d := c.join("d", func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return engine, nil }
	})
	d.fetched()
	if got := d.names("runs"); len(got) > 0 || engine.cut.Load() == 0 {
		t.Fatalf("%q, %d requests failed", got, engine.cut.Load())
	}
	engine.most = 1 << 30
	d.fetched()
	if got := d.names("runs"); !slices.Equal(got, []string{"y"}) {
		t.Errorf("%q", got)
	}
}

// ragged is an engine that gives no long range of an object.
type ragged struct {
	bucket.Bucket
	most int64
	cut  atomic.Int64
}

func (r *ragged) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if n > r.most {
		r.cut.Add(1)
		return nil, bucket.Info{}, &bucket.Error{Op: "get", Key: key, Kind: bucket.ErrUnreachable}
	}
	return r.Bucket.Get(ctx, key, off, n, unless)
}
