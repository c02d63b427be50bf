package volume

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// hooked is a bucket that calls a function once, before what is asked of a kind of key.
type hooked struct {
	bucket.Bucket
	prefix string
	call   func()
}

func (h *hooked) at(key string) {
	if f := h.call; f != nil && strings.Contains(key, h.prefix) {
		h.call = nil
		f()
	}
}

func (h *hooked) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	h.at(key)
	return h.Bucket.Get(ctx, key, off, n, unless)
}

func (h *hooked) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	h.at(key)
	return h.Bucket.Put(ctx, key, body, cond)
}

// hook has the machine ask its remote through a hooked bucket.
func (m *machine) hook(prefix string) *hooked {
	h := &hooked{Bucket: &m.c.mu, prefix: prefix}
	m.rig = m.reopen(func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return h, nil }
	})
	return h
}

// told is a kernel that calls a function when a name is made known to it, once at a time.
type told struct {
	content.Kernel
	mu   sync.Mutex
	call func(name string)
}

func (k *told) InvalidateName(_ content.NodeID, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.call(name)
}

// tells has the mount tell a function, in place of a kernel, of names.
func (r *rig) tells(call func(name string)) {
	r.content.SetKernel(&told{Kernel: r.content.Kernel(), call: call})
}

// What a program writes, renames or removes while a pull fetches stays.
func TestPullRaces(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.published("")
	h := b.hook("d/")
	for name, change := range map[string]func(){
		"written":  func() { b.put(p, modelFile(t, "XYZ")) },
		"replaced": func() { b.put("runs/x/1/next", modelFile(t, "XYZ")); b.rename("runs/x/1/next", p) },
	} {
		t.Run(name, func(t *testing.T) {
			b.put(p, modelFile(t, "ABC"))
			b.published("")
			b.pulled("")
			a.pulled("")
			a.put(p, modelFile(t, name[:1]+"BD"))
			a.published("")
			h.call = change
			b.pulled("", p)
			if h.call != nil {
				t.Fatal("nothing was fetched")
			}
			b.same(p, modelFile(t, "XYZ"))
			for _, name := range b.listing("runs/x/1") {
				if strings.HasPrefix(name, ".") {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

// What a program writes into a file that was pulled just now is a change.
func TestPullThenWritten(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("first"))
	a.published("")
	b.tells(func(name string) {
		if name == "f" {
			b.write("runs/x/1/f", []byte("local"))
		}
	})
	b.pulled("")
	b.same("runs/x/1/f", []byte("local"))
	b.remoteIs("runs/x/1/f", "pending")
	a.put("runs/x/1/f", []byte("second"))
	a.published("")
	b.pulled("", "runs/x/1/f")
	b.same("runs/x/1/f", []byte("local"))
}

// A file that becomes a link elsewhere becomes one here, and no removal is noted by that.
func TestPullTurnsFileIntoLink(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("f"))
	a.published("")
	b.pulled("")
	a.unlink("runs/x/1/f")
	dir := a.find("runs/x/1")
	n, _, err := a.Symlink(dir, "f", "elsewhere", a.me)
	if err != nil {
		t.Fatal(err)
	}
	a.forget(n)
	a.forget(dir)
	a.published("")
	b.pulled("")
	l := b.find("runs/x/1/f")
	if to, err := b.Readlink(l); to != "elsewhere" || err != nil {
		t.Errorf("%q, %v", to, err)
	}
	b.forget(l)
	p, err := os.ReadFile(filepath.Join(b.dir, "remote.log"))
	if err != nil || bytes.Contains(p, []byte("runs/x/1/f")) {
		t.Errorf("%q, %v", p, err)
	}
}

// What is removed while it is published is published as removed by the next push.
func TestRemovedWhilePublished(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	h := a.hook("heads/")
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/1/g", []byte("g"))
	h.call = func() { a.unlink("runs/x/1/f") }
	if p := a.published(""); p.Names != 4 {
		t.Errorf("%+v", p)
	}
	if p := a.published(""); p.Removed != 1 {
		t.Errorf("%+v", p)
	}
	d := c.join("d")
	d.pulled("")
	if d.exists("runs/x/1/f") {
		t.Error("it came back")
	}
	d.same("runs/x/1/g", []byte("g"))
}

// Of two folders that changed places, what is in one alone is published as moved.
func TestRemovedByExchange(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/2/g", []byte("g"))
	a.published("")
	if err := a.tryRename("runs/x/1", "runs/x/2", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	if p := a.published(""); p.Removed != 2 {
		t.Errorf("%+v", p)
	}
}

// A name that is a file here and a folder elsewhere is left, and all else is pulled.
func TestPullAroundFile(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/2/f", []byte("f"))
	a.published("")
	b.put("runs/x/1", []byte("a file"))
	b.pulled("", "runs/x/1", "runs/x/1/f")
	b.same("runs/x/1", []byte("a file"))
	b.same("runs/x/2/f", []byte("f"))
}

// A pull forgets no change of attributes.
func TestPullThenPublishedMode(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("f"))
	a.published("")
	b.pulled("")
	b.setattr("runs/x/1/f", &tree.SetAttr{Mode: ptr(uint32(0o600))})
	b.attr("runs/x/1", "user.note", "mine")
	b.pulled("")
	b.remoteIs("runs/x/1/f", "pending")
	if p := b.published(""); p.Names != 2 {
		t.Errorf("%+v", p)
	}
}

func ptr[T any](v T) *T { return &v }

// Nothing that changes in a step that was published as a whole is overlooked.
func TestPublishedAgain(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/sub/f", []byte("f"))
	a.put("other/y/1/f", []byte("f"))
	a.link("runs/x/1/sub/f", "other/hard")
	a.published("")
	a.attr("runs/x/1/sub", "user.note", "note")
	if p := a.published(""); p.Names != 1 {
		t.Errorf("attribute of a folder: %+v", p)
	}
	a.setattr("runs/x/1/sub/f", &tree.SetAttr{Mode: ptr(uint32(0o600))})
	if p := a.published(""); p.Names != 1 {
		t.Errorf("mode: %+v", p)
	}
	a.write("other/hard", []byte("by another name"))
	if p := a.published(""); p.Names != 1 {
		t.Errorf("another name: %+v", p)
	}
	a.write("runs/x/1/sub/f", nil)
	if p := a.published(""); p.Names != 1 {
		t.Errorf("made empty: %+v", p)
	}
	a.mkdir("runs/x/1/sub/deep")
	if p := a.published(""); p.Names != 1 {
		t.Errorf("folder: %+v", p)
	}
	a.rename("runs", "gone")
	a.published("")
	a.rename("other", "runs")
	if p := a.published("", "runs/hard"); p.Names != 3 {
		t.Errorf("folder that became runs: %+v", p)
	}
}

// In the background a step appears as a whole: not before all of it is packed.
func TestPublishedWhenPacked(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.rig = a.reopen(c.shared, func(o *Options) { o.Publish = true })
	a.content.Step = func(what string) error {
		if what == "pack: record" {
			return unix.EIO
		}
		return nil
	}
	a.put("runs/x/1/model.safetensors", modelFile(t, "ABC"))
	a.put("runs/x/1/f", []byte("f"))
	a.eventually("the step waits", func() bool {
		s := a.sharing.get().Status()
		return len(s.Waiting) == 1 && s.Waiting[0].Path == "runs/x/1/model.safetensors"
	})
	d := c.join("d")
	if _, err := d.Pull(context.Background(), "runs", nil); err != nil {
		t.Error(err)
	}
	if d.exists("runs/x/1/f") {
		t.Error("it is there in part")
	}
}

// What is pulled just now is not published as if it came from here.
func TestPulledWhilePublished(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for i := range 50 {
		a.put(fmt.Sprintf("runs/x/1/f%d", i), []byte("f"))
	}
	a.published("")
	var once sync.Once
	pushed := make(chan *control.Pushed)
	b.tells(func(string) {
		once.Do(func() {
			go func() {
				p, err := b.Push(context.Background(), "", control.PushOptions{}, nil)
				if err != nil {
					t.Error(err)
				}
				pushed <- p
			}()
		})
	})
	b.pulled("")
	if p := <-pushed; p == nil || p.Names != 0 {
		t.Errorf("%+v", p)
	}
}

// A file that the remote has lost keeps no other from being pulled.
func TestPullAroundLostFile(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/model.safetensors", modelFile(t, "ABC"))
	a.published("")
	var lost []string
	for o, err := range c.mu.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(o.Key, "d/") || strings.HasPrefix(o.Key, "m/") {
			lost = append(lost, o.Key)
		}
	}
	if err := c.mu.Delete(context.Background(), lost); err != nil || len(lost) == 0 {
		t.Fatal(lost, err)
	}
	a.put("runs/x/2/f", random(100<<10, 1))
	a.published("")
	b.pulled("", "runs/x/1/model.safetensors")
	b.same("runs/x/2/f", random(100<<10, 1))
}

// A removal that failed is not published, whatever is lost later.
func TestFailedRemovalIsForgotten(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/1/g", []byte("g"))
	a.put("runs/x/2/f", []byte("f"))
	a.published("")
	x := a.find("runs/x")
	if err := a.Rmdir(x, "1"); err != unix.ENOTEMPTY {
		t.Fatal(err)
	}
	a.forget(x)
	if err := a.tryRename("runs/x/1", "runs/x/2", 0); err != unix.ENOTEMPTY {
		t.Fatal(err)
	}
	a.unlink("runs/x/1/g")
	a.close()
	if err := os.Remove(a.at("tree/runs/x/1/f")); err != nil {
		t.Fatal(err)
	}
	a.again()
	if p := a.published(""); p.Removed != 1 {
		t.Errorf("%+v", p)
	}
}

// A daemon without privileges pulls files that nobody may write, and in place of such.
func TestPullUnprivileged(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t, "^TestPullUnprivileged$")
		return
	}
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for _, contents := range []string{"ABC", "ABD"} {
		for p, data := range map[string][]byte{
			"runs/x/1/model.safetensors": modelFile(t, contents), "runs/x/1/f": []byte(contents),
		} {
			if a.exists(p) {
				a.unlink(p)
			}
			a.put(p, data)
			a.setattr(p, &tree.SetAttr{Mode: ptr(uint32(0o444))})
		}
		a.published("")
		b.pulled("")
		b.same("runs/x/1/model.safetensors", modelFile(t, contents))
		b.same("runs/x/1/f", []byte(contents))
		if m := b.stat("runs/x/1/f").Mode & 0o777; m != 0o444 {
			t.Errorf("mode %o", m)
		}
	}
}
