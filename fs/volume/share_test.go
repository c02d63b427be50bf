package volume

import (
	"bytes"
	"context"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/control"
)

// cloud is a remote in memory, and the machines that share it.
type cloud struct {
	t  testing.TB
	mu bucket.Mem
	id remote.Format
}

func newCloud(t testing.TB) *cloud {
	c := &cloud{t: t}
	var err error
	if c.id, _, err = remote.Make(context.Background(), &c.mu, time.Now()); err != nil {
		t.Fatal(err)
	}
	return c
}

// machine is a mount of a store that is joined to the remote.
type machine struct {
	*rig
	c *cloud
}

func (c *cloud) join(name string, set ...func(*Options)) *machine {
	c.t.Helper()
	r := newRig(c.t)
	r.close()
	c.joins(r, name)
	return &machine{r.reopen(append([]func(*Options){c.shared}, set...)...), c}
}

// joins joins a store to the remote.
func (c *cloud) joins(r *rig, name string) {
	c.t.Helper()
	w, err := remote.Register(context.Background(), &c.mu, name)
	if err != nil {
		c.t.Fatal(err)
	}
	a, err := remote.ParseURL("s3://models/team")
	if err != nil {
		c.t.Fatal(err)
	}
	if err := (remote.Joined{Address: a, ID: c.id.ID, Writer: w}).Write(r.dir); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cloud) shared(o *Options) {
	o.Remote = func(remote.Joined) (bucket.Bucket, error) { return &c.mu, nil }
}

func (m *machine) again() {
	m.t.Helper()
	m.rig = m.reopen(m.c.shared)
}

// put makes a file, and the folders above it.
func (m *machine) put(p string, data []byte) {
	m.t.Helper()
	m.mkdir(path.Dir(p))
	m.write(p, data)
}

// published pushes a path; all of it is published but what is named.
func (m *machine) published(at string, left ...string) *control.Pushed {
	m.t.Helper()
	p, err := m.Push(context.Background(), at, control.PushOptions{}, nil)
	if err != nil {
		m.t.Fatalf("push %s: %v", at, err)
	}
	m.skipped("push", p.Skipped, left)
	return p
}

func (m *machine) pulled(at string, left ...string) *control.Pulled {
	m.t.Helper()
	p, err := m.Pull(context.Background(), at, nil)
	if err != nil {
		m.t.Fatalf("pull %s: %v", at, err)
	}
	m.skipped("pull", p.Skipped, left)
	return p
}

func (m *machine) skipped(what string, got []control.Skip, want []string) {
	m.t.Helper()
	var paths []string
	for _, s := range got {
		paths = append(paths, s.Path)
	}
	if !slices.Equal(paths, want) {
		m.t.Errorf("%s left %v, want %v", what, got, want)
	}
}

func (m *machine) conflictsAre(want ...string) {
	m.t.Helper()
	found, err := m.Conflicts(context.Background(), "")
	if err != nil {
		m.t.Fatal(err)
	}
	var got []string
	for _, n := range found.Names {
		got = append(got, n.Path)
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("conflicts %v, want %v", got, want)
	}
}

// remoteIs fails unless a name's attribute says so.
func (m *machine) remoteIs(p, want string) {
	m.t.Helper()
	if got := m.remoteState(p); got != want {
		m.t.Errorf("%s: %s is %q, want %q", p, XattrRemote, got, want)
	}
}

func (m *machine) remoteState(p string) string {
	m.t.Helper()
	n := m.find(p)
	defer m.forget(n)
	buf := make([]byte, 100)
	k, err := m.GetXattr(context.Background(), n, XattrRemote, buf)
	if err != nil {
		m.t.Errorf("%s of %s: %v", XattrRemote, p, err)
	}
	return string(buf[:k])
}

// attr sets an attribute of a name; with "" it has that no more.
func (m *machine) attr(p, name, value string) {
	m.t.Helper()
	n := m.find(p)
	defer m.forget(n)
	var err error
	if value == "" {
		err = m.RemoveXattr(n, name)
	} else {
		err = m.SetXattr(n, name, []byte(value), 0)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// twoSteps are the files of a run.
func twoSteps(t *testing.T) map[string][]byte {
	return map[string][]byte{
		"runs/x/1/model.safetensors": modelFile(t, "ABC"),
		"runs/x/1/metrics.json":      []byte(`{"loss": 0.25}`),
		"runs/x/1/empty":             nil,
		"runs/x/1/notes.txt":         bytes.Repeat([]byte("plain "), 5000),
		"runs/x/2/model.safetensors": modelFile(t, "ABD"),
	}
}

func TestPushAndPull(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	files := twoSteps(t)
	files["runs/x/config.yaml"] = []byte("lr: 1\n")
	for p, data := range files {
		a.put(p, data)
	}
	run := a.find("runs/x")
	if n, _, err := a.Symlink(run, "latest", "2", a.me); err != nil {
		t.Fatal(err)
	} else {
		a.forget(n)
	}
	a.forget(run)
	a.attr("runs/x/1", "user.metric.acc", "0.5")
	first := a.published("")
	if first.Names != len(files)+1+3 || first.Removed != 0 { // and the folders x, 1, 2
		t.Errorf("%+v", first)
	}
	if again := a.published(""); again.Names != 0 || again.Objects != 0 {
		t.Errorf("again: %+v", again)
	}
	got := b.pulled("runs/x")
	if got.Files != len(files) {
		t.Errorf("%+v", got)
	}
	for range 2 {
		for p, data := range files {
			b.same(p, data)
		}
		n := b.find("runs/x/latest")
		if to, err := b.Readlink(n); to != "2" || err != nil {
			t.Errorf("link to %q, %v", to, err)
		}
		b.forget(n)
		best, err := b.Best(context.Background(), "runs/x", "acc", "max")
		if err != nil || best.Step != "1" {
			t.Errorf("best %+v, %v", best, err)
		}
		b.again()
	}
	if again := b.pulled(""); again.Files != 0 || again.Fetched != 0 {
		t.Errorf("again: %+v", again)
	}
	if back := b.published(""); back.Names != 0 {
		t.Errorf("what was pulled is published: %+v", back)
	}
	if c := b.check(); c.Damaged != 0 {
		t.Errorf("%+v", c)
	}
}

// What is removed here is removed there, and may be pulled no more; renames are both.
func TestRemovedIsPublished(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for _, p := range []string{"runs/x/1/f", "runs/x/2/f", "runs/x/3/f"} {
		a.put(p, []byte(p))
	}
	a.published("")
	b.pulled("")
	a.again() // the note of a removal outlasts the process
	a.unlink("runs/x/1/f")
	x := a.find("runs/x")
	if err := a.Rmdir(x, "1"); err != nil {
		t.Fatal(err)
	}
	a.forget(x)
	a.rename("runs/x/2", "runs/x/4")
	a.again()
	p := a.published("")
	if p.Removed != 4 { // 1, 1/f, 2, 2/f
		t.Errorf("%+v", p)
	}
	d := c.join("d")
	d.pulled("")
	d.same("runs/x/4/f", []byte("runs/x/2/f"))
	d.same("runs/x/3/f", []byte("runs/x/3/f"))
	for _, p := range []string{"runs/x/1", "runs/x/2"} {
		if d.exists(p) {
			t.Errorf("%s is there", p)
		}
	}
	b.conflictsAre()
}

// A name that is missing and was not removed by a program is not removed for others.
func TestMissingIsNotRemoved(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("f"))
	a.published("")
	a.close()
	if err := os.Remove(a.at("tree/runs/x/1/f")); err != nil {
		t.Fatal(err)
	}
	a.again()
	if p := a.published(""); p.Removed != 0 {
		t.Errorf("%+v", p)
	}
	a.pulled("")
	a.same("runs/x/1/f", []byte("f"))
}

func TestConflictsAreKept(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("first"))
	a.remoteIs("runs/x/1/f", "pending")
	a.published("")
	a.remoteIs("runs/x/1/f", "pushed")
	a.remoteIs("runs/x/1", "pushed")
	b.pulled("")
	b.remoteIs("runs/x/1/f", "pushed")
	b.conflictsAre()
	b.put("runs/x/1/f", []byte("b saw the first"))
	b.remoteIs("runs/x/1/f", "pending")
	b.published("")
	b.remoteIs("runs", "no")
	a.put("runs/x/1/f", []byte("a did not see b's"))
	a.Fetch(context.Background())
	a.conflictsAre()
	if p := a.pulled("", "runs/x/1/f"); p.Files != 0 {
		t.Errorf("%+v", p)
	}
	a.same("runs/x/1/f", []byte("a did not see b's"))
	a.published("")
	b.Fetch(context.Background())
	for _, m := range []*machine{a, b} {
		m.conflictsAre("runs/x/1/f")
		m.remoteIs("runs/x/1/f", "conflict")
		m.pulled("")
		m.same("runs/x/1/f", []byte("a did not see b's"))
		m.remoteIs("runs/x/1/f", "conflict")
		m.again()
		m.remoteIs("runs/x/1/f", "conflict")
	}
	b.put("runs/x/1/f", []byte("b saw both"))
	b.published("")
	b.remoteIs("runs/x/1/f", "pushed")
	a.pulled("")
	a.remoteIs("runs/x/1/f", "pushed")
}

// A step that is written is not published, nor what savers have not finished, nor what a crash has torn.
func TestUnfinishedIsNotPublished(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("done"))
	a.put("runs/x/tmp-2/f", []byte("half"))
	a.put("runs/x/.hidden/f", []byte("hidden"))
	a.put("elsewhere/f", []byte("not shared"))
	a.mkdir("runs/x/3")
	h := a.open("runs/x/3/f", unix.O_WRONLY|unix.O_CREAT)
	p := a.published("", "runs/x/3")
	if p.Names != 3 { // x, 1, 1/f
		t.Errorf("%+v", p)
	}
	a.release(h)
	if p := a.published(""); p.Names != 2 {
		t.Errorf("%+v", p)
	}
	a.put("runs/f", []byte("in no run"))
	for p, want := range map[string]string{"runs/x/1/f": "pushed", "runs/x/tmp-2/f": "no",
		"runs/x/tmp-2": "no", "runs/x/.hidden": "no", "runs/x/.hidden/f": "no", "elsewhere/f": "no",
		"runs/f": "no"} {
		a.remoteIs(p, want)
	}
}

// A step of which a file was open for writing when the mount was killed is published once somebody has said
// that it is whole, as touch does.
func TestTornIsTouched(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a, d := c.join("a"), c.join("d")
	a.mkdir("runs/x/1")
	h := a.open(p, unix.O_WRONLY|unix.O_CREAT)
	a.writeAt(h, modelFile(t, "ABC"), 0)
	b := &machine{a.rig.killed(c.shared), c}
	a.release(h)
	b.published("", "runs/x/1")
	b.release(b.open(p, unix.O_WRONLY))
	b.published("")
	d.pulled("")
	d.same(p, modelFile(t, "ABC"))
}

// In the background a step is published once it was left alone.
func TestPublishedInTheBackground(t *testing.T) {
	c := newCloud(t)
	a := c.join("a", func(o *Options) { o.Publish = true })
	a.put("runs/x/1/f", []byte("f"))
	a.eventually("the step is published", func() bool { return a.remoteState("runs/x/1/f") == "pushed" })
	d := c.join("d")
	d.pulled("runs/x/1")
	d.same("runs/x/1/f", []byte("f"))
}

// Wherever a push is killed, the next one ends what it began, and nothing is published in part.
func TestPushCutOff(t *testing.T) {
	for n := 1; ; n++ {
		c := newCloud(t)
		a := c.join("a")
		cut := &cutBucket{Bucket: &c.mu}
		cut.left.Store(int64(n))
		a.rig = a.reopen(func(o *Options) {
			o.Remote = func(remote.Joined) (bucket.Bucket, error) { return cut, nil }
		})
		a.put("runs/x/1/model.safetensors", modelFile(t, "ABC"))
		a.put("runs/x/1/f", []byte("f"))
		_, err := a.Push(context.Background(), "", control.PushOptions{}, nil)
		d := c.join("d")
		if p, perr := d.Pull(context.Background(), "", nil); perr == nil && p.Files != 2 && p.Files != 0 {
			t.Errorf("after %d requests: %+v", n, p)
		}
		a.again()
		a.published("")
		d.pulled("")
		d.same("runs/x/1/model.safetensors", modelFile(t, "ABC"))
		d.same("runs/x/1/f", []byte("f"))
		d.conflictsAre()
		if err == nil {
			break
		}
	}
}

// cutBucket is one that is not reached any more after so many requests; the last one is done, and its answer
// lost.
type cutBucket struct {
	bucket.Bucket
	left atomic.Int64
}

func (c *cutBucket) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	left := c.left.Add(-1)
	if left < 0 {
		return "", &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrUnreachable}
	}
	v, err := c.Bucket.Put(ctx, key, body, cond)
	if left == 0 && err == nil {
		return "", &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrDoubt}
	}
	return v, err
}
