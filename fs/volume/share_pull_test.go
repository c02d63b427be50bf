package volume

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// killedPull leaves a file as a pull does that is killed when it has put what was published in the place of
// what was there, and before it notes that. db: what the store knows of the remote is lost as well.
func (m *machine) killedPull(p string, db bool) (left string) {
	m.t.Helper()
	var known []byte
	m.tells(func(string) {
		found, _ := filepath.Glob(m.at("tree/" + filepath.Dir(p) + "/.ckptfs-pull-*"))
		if len(found) == 1 && left == "" {
			left = found[0]
			err := os.Link(left, m.at("left"))
			if err == nil {
				known, err = os.ReadFile(m.at(remoteState))
			}
			if err != nil {
				m.t.Error(err)
			}
		}
	})
	m.pulled("")
	m.close()
	if err := os.Rename(m.at("left"), left); err != nil {
		m.t.Fatal(err)
	}
	if db {
		if err := os.WriteFile(m.at(remoteState), known, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	m.again()
	return left
}

// What was pulled is in the store alone, and not in the cache besides; what was read alone is in the cache.
func TestPullIsKeptOnce(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	data := modelFile(t, "ABC")
	a.put("runs/x/1/model.safetensors", data)
	a.published("")
	b.fetched()
	b.same("runs/x/1/model.safetensors", data)
	cached := func() int64 { return b.reads.tier.Load().cache.Stats().Bytes }
	if cached() < int64(len(data))/2 {
		t.Errorf("%d bytes of %d that were read are kept", cached(), len(data))
	}
	if p := b.pulled(""); p.Fetched > int64(len(data))/20 {
		t.Errorf("%d bytes of %d that were read before were fetched once more", p.Fetched, len(data))
	}
	if got := cached(); got > int64(len(data))/20 {
		t.Errorf("%d bytes of %d that were pulled are kept twice", got, len(data))
	}
	b.same("runs/x/1/model.safetensors", data)
}

// What a killed pull left is removed before anything is published or pulled from there.
func TestLeftOfKilledPull(t *testing.T) {
	const p, link = "runs/x/1/model.safetensors", "runs/x/1/link"
	for name, of := range map[string]func(m *machine, contents string){
		"file": func(m *machine, contents string) { m.put(p, modelFile(t, contents)) },
		"link": func(m *machine, contents string) {
			m.put("runs/x/1/f", nil)
			if m.exists(link) {
				m.unlink(link)
			}
			dir := m.find("runs/x/1")
			n, _, err := m.Symlink(dir, "link", contents, m.me)
			if err != nil {
				t.Fatal(err)
			}
			m.forget(n)
			m.forget(dir)
		},
	} {
		for _, lost := range []bool{true, false} {
			for _, pulls := range []bool{true, false} {
				t.Run(fmt.Sprint(name, lost, pulls), func(t *testing.T) {
					c := newCloud(t)
					a, b := c.join("a"), c.join("b")
					of(a, "ABC")
					a.published("")
					b.pulled("")
					of(a, "ABD")
					a.published("")
					left := b.killedPull(p, lost)
					if pulls {
						b.pulled("")
					} else {
						b.published("")
					}
					if _, err := os.Lstat(left); !os.IsNotExist(err) {
						t.Errorf("it is left: %v", err)
					}
					b.pulled("")
					b.conflictsAre()
					if name == "file" {
						b.same(p, modelFile(t, "ABD"))
					}
				})
			}
		}
	}
}

// What never got its name is removed, too.
func TestLeftUnnamed(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/1/g", []byte("g"))
	for from, to := range map[string]string{"f": fmt.Sprint(a.stat("runs/x/1/f").Ino), "g": "new"} {
		a.rename("runs/x/1/"+from, "runs/x/1/.ckptfs-pull-"+to)
	}
	a.published("")
	if got := a.listing("runs/x/1"); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// What a program may have written at the moment of the kill is kept, and named.
func TestLeftOfProgram(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.published("")
	b.pulled("")
	a.put(p, modelFile(t, "ABD"))
	a.published("")
	left := strings.TrimPrefix(b.killedPull(p, true), b.at("tree")+"/")
	b.write(left, modelFile(t, "XYZ"))
	b.sync()
	left = strings.Replace(left, "-pull-", "-aside-", 1)
	for range 2 {
		b.published("", left)
		b.pulled("", left)
		b.same(left, modelFile(t, "XYZ"))
		b.same(p, modelFile(t, "ABD"))
	}
}

// Attributes that changed elsewhere, with the same bytes, change here, unless they were changed here as well.
func TestPullTakesAttributes(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/1/model.safetensors", modelFile(t, "ABC"))
	has := func(m *machine, name, want string) {
		t.Helper()
		n := m.find("runs/x/1")
		defer m.forget(n)
		buf := make([]byte, 100)
		k, err := m.GetXattr(context.Background(), n, name, buf)
		if err == unix.ENODATA {
			k, err = 0, nil
		}
		if err != nil || string(buf[:k]) != want {
			t.Errorf("%s is %q, %v; want %q", name, buf[:max(k, 0)], err, want)
		}
	}
	a.attr("runs/x/1", "user.metric.acc", "0.5")
	a.attr("runs/x/1", "user.old", "old")
	a.published("")
	b.pulled("")
	a.attr("runs/x/1", "user.metric.acc", "0.75")
	a.attr("runs/x/1", "user.old", "")
	for _, p := range []string{"runs/x/1", "runs/x/1/f", "runs/x/1/model.safetensors"} {
		a.setattr(p, &tree.SetAttr{Mode: ptr(uint32(0o700))})
	}
	a.published("")
	b.pulled("")
	has(b, "user.metric.acc", "0.75")
	has(b, "user.old", "")
	for _, p := range []string{"runs/x/1", "runs/x/1/f", "runs/x/1/model.safetensors"} {
		if got := b.stat(p); got.Mode&0o777 != 0o700 || got.Mtime != a.stat(p).Mtime && p != "runs/x/1" {
			t.Errorf("%s: %+v", p, got)
		}
		b.remoteIs(p, "pushed")
	}
	if p := b.published(""); p.Names != 0 {
		t.Errorf("%+v", p)
	}
	b.attr("runs/x/1", "user.note", "mine")
	a.attr("runs/x/1", "user.note", "theirs")
	a.published("")
	b.pulled("")
	has(b, "user.note", "mine")
	b.remoteIs("runs/x/1", "pending")
}

// The attributes of a folder that was made on two machines are published by both.
func TestFolderOfTwo(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("f"))
	a.published("")
	b.mkdir("runs/x/1")
	b.attr("runs/x/1", "user.note", "note")
	b.pulled("")
	b.remoteIs("runs/x/1", "pending")
	if p := b.published(""); p.Names == 0 {
		t.Errorf("%+v", p)
	}
	a.pulled("")
	b.conflictsAre()
}

// While a pull fetches, steps are published; what was published meanwhile is not undone by it.
func TestPushDuringPull(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.published("")
	b.pulled("")
	a.put(p, modelFile(t, "ABD"))
	a.published("")
	h := b.hook("d/")
	h.call = func() {
		b.put(p, modelFile(t, "XYZ"))
		b.put("runs/y/1/f", []byte("f"))
		if out := b.published(""); out.Names == 0 {
			t.Errorf("%+v", out)
		}
	}
	b.pulled("")
	if h.call != nil {
		t.Fatal("nothing was fetched")
	}
	b.same(p, modelFile(t, "XYZ"))
	b.remoteIs(p, "pushed")
	b.conflictsAre() // what b wrote over was a's, which had appeared by then
}

// A pull of many names makes them in several portions.
func TestPullOfMany(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for run := range 2 {
		for step := range 3 {
			for i := range 150 {
				a.put(fmt.Sprintf("runs/r%d/%d/f%d", run, step, i), bytes.Repeat([]byte{byte(i)}, i))
			}
		}
	}
	a.published("")
	if p := b.pulled("runs"); p.Files != 900 {
		t.Errorf("%+v", p)
	}
	for run := range 2 {
		for step := range 3 {
			for i := range 150 {
				b.same(fmt.Sprintf("runs/r%d/%d/f%d", run, step, i), bytes.Repeat([]byte{byte(i)}, i))
			}
		}
	}
	if p := b.published(""); p.Names != 0 {
		t.Errorf("%+v", p)
	}
}
