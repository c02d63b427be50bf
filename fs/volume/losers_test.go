package volume

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// statusOf is what a machine's status says of its remote.
func (m *machine) statusOf() *control.RemoteStatus {
	m.t.Helper()
	s, err := m.Status(context.Background())
	if err != nil || s.Remote == nil {
		m.t.Fatalf("%+v, %v", s, err)
	}
	return s.Remote
}

// inConflict fails unless the status counts so many names with several versions.
func (m *machine) inConflict(want int) {
	m.t.Helper()
	if n := m.statusOf().Conflicts; n == nil || *n != want {
		m.t.Errorf("%v names with several versions, want %d", n, want)
	}
}

// What lost its name to another machine's version is a file below .ckptfs/conflicts, on all machines, until
// somebody who saw both writes it again.
func TestLosersAreFiles(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	const model, small = "runs/x/1/model.safetensors", "runs/x/1/config.json"
	for m, says := range map[*machine]string{a: "A", b: "BB"} {
		m.put(model, modelFile(t, says+"CD"))
		m.put(small, []byte(says))
		m.put("runs/y/"+says, []byte("no conflict"))
	}
	a.published("")
	b.published("")
	a.fetched()
	shown := map[string]*machine{a.writer(): a, b.writer(): b}
	for _, m := range []*machine{a, b, c.join("d")} {
		m.fetched()
		m.inConflict(2)
		if got := m.names(".ckptfs/conflicts"); !slices.Equal(got, []string{"runs"}) {
			t.Errorf("%q", got)
		}
		got := slices.Sorted(slices.Values(m.names(".ckptfs/conflicts/runs/x/1")))
		if len(got) != 2 || !strings.HasPrefix(got[0], "config.json@") {
			t.Fatalf("%q", got)
		}
		for _, name := range got {
			name, whose, _ := strings.Cut(name, "@")
			of := "A"
			if shown[whose] == b {
				of = "BB"
			}
			want := []byte(of)
			if name == "model.safetensors" {
				want = modelFile(t, of+"CD")
			}
			p := ".ckptfs/conflicts/runs/x/1/" + name + "@" + whose
			m.same(p, want)
			if st := m.stat(p); st.Size != int64(len(want)) || st.Mode != unix.S_IFREG|0o400 {
				t.Errorf("%s: %+v", p, st)
			}
			if _, err := m.openFile(p, unix.O_RDWR); !errors.Is(err, unix.EROFS) {
				t.Errorf("%s is opened for writing: %v", p, err)
			}
		}
		if m.exists(".ckptfs/conflicts/runs/x/1/other@" + a.writer()) {
			t.Error("a name that is in no conflict is there")
		}
		m.hiddenFrom(".ckptfs/conflicts", tree.Caller{UID: 77, GID: 77})
	}
	a.again()
	a.inConflict(2)
	a.put(model, modelFile(t, "XYZ"))
	a.put(small, []byte("both were seen"))
	a.published("")
	a.inConflict(0)
	b.fetched()
	b.inConflict(0)
	if got := b.names(".ckptfs/conflicts"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// writer is the name under which a machine publishes.
func (m *machine) writer() string { return m.statusOf().Writer }

// hiddenFrom fails if a caller is shown anything in a folder.
func (m *machine) hiddenFrom(p string, c tree.Caller) {
	m.t.Helper()
	dir := m.find(p)
	defer m.forget(dir)
	if n, _, err := m.Volume.Lookup(context.Background(), c, dir, "runs"); err == nil {
		m.forget(n)
		m.t.Errorf("user %d finds what is in %s", c.UID, p)
	}
	d, err := dir.OpenDir()
	if err != nil {
		m.t.Fatal(err)
	}
	defer d.Release()
	list, err := m.Volume.Entries(c, d, 0)
	for _, e := range list {
		if e.Name != "." && e.Name != ".." {
			m.t.Errorf("user %d is listed %s, %v", c.UID, e.Name, err)
		}
	}
}

// Of others' runs those appear that are asked for; what is here stays, and is published.
func TestRunsThatAppear(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	b := c.join("b", func(o *Options) { o.Runs = []string{"x*", "y"} })
	for _, run := range []string{"x1", "x2", "y", "yy"} {
		a.put("runs/"+run+"/1/f", []byte(run))
	}
	a.published("")
	b.fetched()
	if got := b.names("runs"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"x1", "x2", "y"}) {
		t.Errorf("%q", got)
	}
	b.put("runs/yy/2/f", []byte("of b"))
	if got := b.names("runs/yy"); !slices.Equal(got, []string{"2"}) {
		t.Errorf("%q", got)
	}
	b.published("")
	a.fetched()
	a.same("runs/yy/2/f", []byte("of b"))
	b.pulled("runs/yy")
	b.same("runs/yy/1/f", []byte("yy"))
	a.unlink("runs/yy/1/f")
	a.published("")
	b.fetched()
	b.same("runs/yy/1/f", []byte("yy"))
}

// onlyRead is a bucket that shows what a mirror shows.
type onlyRead struct{ bucket.Bucket }

func (onlyRead) Put(_ context.Context, key string, _ bucket.Body, _ bucket.Cond) (bucket.Version, error) {
	return "", &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrDenied}
}

func (onlyRead) Delete(context.Context, []string) error {
	return &bucket.Error{Op: "delete", Kind: bucket.ErrDenied}
}

func (o onlyRead) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		for info, err := range o.Bucket.List(ctx, prefix, after) {
			if info.Key == record.HeadKey(record.ExportsWriter) && !yield(info, err) {
				return
			}
		}
	}
}

// A store whose remote is only read shows what was exported, and publishes nothing.
func TestOnlyRead(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/model.safetensors", modelFile(t, "ABC"))
	a.put("runs/secret/1/f", []byte("not exported"))
	a.published("")
	if _, err := a.Export(context.Background(), "shown", "runs/x", true); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.close()
	j := remote.Joined{Address: remote.Address{Web: "https://mirror.example/team"}, ID: c.id.ID}
	if err := j.Write(r.dir); err != nil {
		t.Fatal(err)
	}
	b := &machine{r.reopen(func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return onlyRead{&c.mu}, nil }
		o.Publish = true
	}), c}
	b.fetched()
	if got := b.names("runs"); !slices.Equal(got, []string{"shown"}) {
		t.Errorf("%q", got)
	}
	b.stub("runs/shown/1/model.safetensors", true)
	b.same("runs/shown/1/model.safetensors", modelFile(t, "ABC"))
	if s := b.statusOf(); !s.ReadOnly || s.Writer != "" {
		t.Errorf("%+v", s)
	}
	b.put("runs/shown/2/f", []byte("of b"))
	_, err := b.Push(context.Background(), "", control.PushOptions{}, nil)
	if !errors.Is(err, bucket.ErrDenied) {
		t.Errorf("push: %v", err)
	}
	if s := b.statusOf(); s.Problem != "" {
		t.Errorf("it was published in the background: %s", s.Problem)
	}
	b.pulled("runs/shown")
	b.stub("runs/shown/1/model.safetensors", false)
}
