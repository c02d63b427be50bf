package volume

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// The newest step is there before the others are, which follow.
func TestNewestFirst(t *testing.T) {
	c := newCloud(t)
	a, d := c.join("a"), c.join("d")
	h := a.hook("heads/")
	for _, p := range []string{"runs/x/3/f", "runs/x/1/f", "runs/y/2/f"} {
		a.put(p, []byte(p))
	}
	future := tree.TimespecOf(time.Now().Add(time.Hour))
	a.setattr("runs/y/2/f", &tree.SetAttr{Mtime: &future})
	commits := 0
	var count func()
	count = func() {
		if commits++; commits == 3 { // of the first commit: the head is read, and put
			d.pulled("")
			d.same("runs/y/2/f", []byte("runs/y/2/f"))
			if d.exists("runs/x") {
				t.Error("another step is there")
			}
		}
		h.call = count
	}
	h.call = count
	p, err := a.Push(context.Background(), "", control.PushOptions{Newest: true}, nil)
	if err != nil || len(p.Skipped) > 0 || commits < 3 {
		t.Fatalf("%+v, %v, %d requests", p, err, commits)
	}
	d.pulled("")
	d.same("runs/x/1/f", []byte("runs/x/1/f"))
	d.same("runs/x/3/f", []byte("runs/x/3/f"))
}

// stuck is a bucket whose first Put goes on until its caller gives up.
type stuck struct {
	bucket.Bucket
	puts  atomic.Int64
	begun chan struct{}
}

func (s *stuck) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if s.puts.Add(1) == 1 {
		close(s.begun)
		<-ctx.Done()
		return "", &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrUnreachable, Err: ctx.Err()}
	}
	return s.Bucket.Put(ctx, key, body, cond)
}

// What is published in the background gives way to who asks for the newest step.
func TestNewestGoesFirst(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	s := &stuck{Bucket: &c.mu, begun: make(chan struct{})}
	a.put("runs/x/1/f", random(100<<10, 1))
	a.sync()
	a.rig = a.reopen(func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return s, nil }
		o.Publish = true
	})
	<-s.begun
	a.put("runs/x/2/f", []byte("newest"))
	p, err := a.Push(context.Background(), "", control.PushOptions{Newest: true}, nil)
	if err != nil || p.Names == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	a.remoteIs("runs/x/2/f", "pushed")
	a.remoteIs("runs/x/1/f", "pushed")
	a.put("runs/x/3/f", []byte("in the background"))
	a.eventually("it goes on", func() bool { return a.remoteState("runs/x/3/f") == "pushed" })
	if p := a.sharing.get().Status().Problem; p != "" {
		t.Error(p)
	}
}

// A push that would leave a name with several versions publishes nothing, if that was asked for.
func TestNoConflict(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for _, p := range []string{"runs/x/1/f", "runs/x/1/g"} {
		a.put(p, []byte("first"))
	}
	push := func(m *machine) error {
		_, err := m.Push(context.Background(), "", control.PushOptions{NoConflict: true}, nil)
		return err
	}
	if err := push(a); err != nil {
		t.Fatal(err)
	}
	b.pulled("")
	a.put("runs/x/1/f", []byte("a's"))
	a.put("runs/x/1/g", []byte("the same"))
	if err := push(a); err != nil {
		t.Fatal(err)
	}
	b.put("runs/x/1/f", []byte("b's"))
	b.put("runs/x/1/g", []byte("the same"))
	b.put("runs/x/2/f", []byte("b's"))
	err := push(b)
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.CodeConflict ||
		!strings.Contains(err.Error(), "runs/x/1/f") || strings.Contains(err.Error(), "runs/x/1/g") {
		t.Fatal(err)
	}
	b.remoteIs("runs/x/2/f", "pending")
	b.conflictsAre()
	b.published("")
	b.conflictsAre("runs/x/1/f")
	b.put("runs/x/1/f", []byte("b saw none of a's"))
	if err := push(b); !errors.As(err, &refused) {
		t.Fatal(err)
	}
}

// Nor does one of a step that two machines made, of which the pusher has seen nothing.
func TestNoConflictOfNewStep(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("a's"))
	b.put("runs/x/1/f", []byte("b's"))
	a.published("")
	_, err := b.Push(context.Background(), "", control.PushOptions{NoConflict: true}, nil)
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.CodeConflict {
		t.Error(err)
	}
	b.conflictsAre()
}

func (m *machine) unpublished(files int, size int64, removed int) {
	m.t.Helper()
	st, err := m.Status(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	want, got := control.Unpublished{Files: files, Bytes: size, Removed: removed}, st.Remote.Unpublished
	if got == nil || *got != want {
		m.t.Errorf("not published are %+v, want %+v", got, want)
	}
}

// What is not published is counted, also while a push goes on, and without an engine.
func TestUnpublished(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.unpublished(0, 0, 0)
	a.put("runs/x/1/model.safetensors", bytes.Repeat([]byte("m"), 5000))
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/tmp-2/f", []byte("half"))
	a.put("elsewhere/f", []byte("not shared"))
	a.unpublished(2, 5001, 0)
	h := a.hook("heads/")
	a.unpublished(2, 5001, 0)
	h.call = func() { a.unpublished(2, 5001, 0) }
	a.published("")
	if h.call != nil {
		t.Error("nothing was published")
	}
	a.unpublished(0, 0, 0)
	a.put("runs/x/4/f", []byte("four"))
	h.call = func() { a.unpublished(1, 4, 0) }
	a.published("")
	if h.call != nil {
		t.Error("nothing was published")
	}
	a.unlink("runs/x/1/f")
	a.put("runs/x/3/g", []byte("new"))
	a.unpublished(1, 3, 1)
	a.again()
	a.unpublished(1, 3, 1)
	a.published("runs/x/3")
	a.unpublished(0, 0, 1)
	if _, err := a.Evict(context.Background(), "", nil); err != nil {
		t.Fatal(err)
	}
	a.remoteIs("runs/x/1/model.safetensors", "pushed")
	a.unpublished(0, 0, 1)
	a.published("")
	a.unpublished(0, 0, 0)
}

// A store that joins a remote while it is open uses it at once.
func TestJoinWhileOpen(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.close()
	j, err := remote.ReadJoined(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(a.at("remote")); err != nil {
		t.Fatal(err)
	}
	a.rig = a.reopen(c.shared, func(o *Options) { o.Publish = true })
	if err := a.Join(context.Background()); err == nil || !strings.Contains(err.Error(), "remote add") {
		t.Error(err)
	}
	a.put("runs/x/1/f", []byte("f"))
	if err := j.Write(a.dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Join(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	a.eventually("the step is published", func() bool { return a.remoteState("runs/x/1/f") == "pushed" })
	a.unlink("runs/x/1/f")
	d := c.join("d")
	a.eventually("so is the removal", func() bool {
		d.pulled("")
		return !d.exists("runs/x/1/f")
	})
}

// A store that left the remote, and joins it again, publishes under the name that it had: what it published
// is its own. STORE/remote has that name then.
func TestJoinAgain(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("f"))
	was := a.published("").Writer
	a.close()
	c.joins(a.rig, "other")
	a.again()
	a.put("runs/x/2/f", []byte("g"))
	p := a.published("")
	j, err := remote.ReadJoined(a.dir)
	if err != nil || p.Writer != was || string(j.Writer) != was {
		t.Errorf("%s, then %s; %s, %v", was, p.Writer, j.Writer, err)
	}
}
