package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/steps"
)

// Machines put files where others have folders, and the reverse: once all published and looked, all show the
// same, and no version is lost but those of names that a machine removed or wrote over which may have seen
// them. Contents are told apart by their sizes.
func TestKindsAgainstModel(t *testing.T) {
	paths := rapid.SampledFrom([]string{"runs/x/1", "runs/x/1/a", "runs/x/1/a/f", "runs/x/1/a/g/h",
		"runs/x/2"})
	rapid.Check(t, func(rt *rapid.T) {
		m := newKindsModel(drawn{t, rt}, 3)
		defer m.close()
		who := func(rt *rapid.T) *machine { return m.all[rapid.IntRange(0, 2).Draw(rt, "machine")] }
		rt.Repeat(map[string]func(*rapid.T){
			"write":  func(rt *rapid.T) { m.write(who(rt), paths.Draw(rt, "path")) },
			"mkdir":  func(rt *rapid.T) { m.mkdir(who(rt), paths.Draw(rt, "path")) },
			"remove": func(rt *rapid.T) { m.remove(who(rt), paths.Draw(rt, "path")) },
			"push":   func(rt *rapid.T) { m.does(who(rt), pushes) },
			"pull":   func(rt *rapid.T) { m.does(who(rt), pullsPacked) },
			"look":   func(rt *rapid.T) { m.does(who(rt), looks) },
			"again":  func(rt *rapid.T) { who(rt).again() },
		})
		m.end()
	})
}

// drawn is a test that rapid draws: what fails in it is shrunk, and told with what led there.
type drawn struct {
	testing.TB
	rt *rapid.T
}

// TempDir is removed after each check: there are hundreds.
func (d drawn) TempDir() string {
	dir := d.TB.TempDir()
	d.rt.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (d drawn) Cleanup(f func())                  { d.rt.Cleanup(f) }
func (d drawn) Error(args ...any)                 { d.rt.Error(args...) }
func (d drawn) Errorf(format string, args ...any) { d.rt.Errorf(format, args...) }
func (d drawn) Fatal(args ...any)                 { d.rt.Fatal(args...) }
func (d drawn) Fatalf(format string, args ...any) { d.rt.Fatalf(format, args...) }
func (d drawn) Logf(format string, args ...any)   { d.rt.Logf(format, args...) }
func (d drawn) Failed() bool                      { return d.TB.Failed() || d.rt.Failed() }

type kindsModel struct {
	c     *cloud
	all   []*machine
	next  int
	stays map[int]string            // paths of versions that no machine removed, by size
	seen  map[*machine]map[int]bool // sizes
}

func newKindsModel(t testing.TB, machines int) *kindsModel {
	m := &kindsModel{c: newCloud(t), stays: map[int]string{}, seen: map[*machine]map[int]bool{}}
	for i := range machines {
		one := m.c.join(fmt.Sprint("m", i))
		m.all, m.seen[one] = append(m.all, one), map[int]bool{}
	}
	return m
}

func (m *kindsModel) close() {
	for _, one := range m.all {
		one.close()
	}
}

// end has all publish and look, and compares.
func (m *kindsModel) end() {
	t := m.c.t
	for range 3 { // what stays for what is in it goes once that is published
		for _, one := range m.all {
			pushes(one)
			pullsPacked(one)
		}
	}
	want := m.all[0].view()
	for i, one := range m.all {
		if has := one.view(); !maps.Equal(want, has) {
			t.Logf("machine %d shows %v, the first %v", i, has, want)
			t.Fatal("the machines show different trees") // always in the same words: rapid shrinks it then
		}
	}
	has := m.remote()
	for size, p := range m.stays {
		if !has[size] {
			t.Fatalf("the version of %d bytes of %s is lost", size, p)
		}
	}
}

func (m *kindsModel) isDir(one *machine, p string) bool {
	n := one.find(p)
	defer one.forget(n)
	return n.IsDir()
}

func (m *kindsModel) write(one *machine, p string) {
	m.mkdir(one, path.Dir(p))
	for one.exists(p) { // what another had hidden appears in its place
		m.remove(one, p)
	}
	m.next++
	size := 10 + m.next
	if m.next%3 == 0 {
		size += record.MaxInline
	}
	one.write(p, bytes.Repeat([]byte{byte(m.next)}, size))
	m.stays[size], m.seen[one][size] = p, true
}

// mkdir makes a folder, and those above it; what is in its place, or theirs, and no folder, goes.
func (m *kindsModel) mkdir(one *machine, p string) {
	if p != steps.Dir {
		m.mkdir(one, path.Dir(p))
	}
	for one.exists(p) && !m.isDir(one, p) {
		m.remove(one, p)
	}
	one.mkdir(p)
}

func (m *kindsModel) remove(one *machine, p string) {
	if !one.exists(p) {
		return
	}
	maps.DeleteFunc(m.stays, func(size int, of string) bool { return of == p && m.seen[one][size] })
	if !m.isDir(one, p) {
		one.unlink(p)
		return
	}
	for _, name := range one.names(p) {
		m.remove(one, path.Join(p, name))
	}
	one.rmdir(p)
}

// pullsPacked pulls, and leaves nothing for what may have to be packed.
func pullsPacked(one *machine) {
	one.sync()
	if _, err := one.Pull(context.Background(), "", nil); err != nil && !errors.Is(err, unix.ENOENT) {
		one.t.Errorf("pull: %v", err)
	}
	looks(one)
}

// does has a machine see what the remote has.
func (m *kindsModel) does(one *machine, it func(*machine)) {
	it(one)
	maps.Copy(m.seen[one], m.remote())
}

// remote is which sizes the remote has, of names and of their other versions.
func (m *kindsModel) remote() map[int]bool {
	has := map[int]bool{}
	for _, n := range m.c.nodes(steps.Dir) {
		for _, e := range append(n.Conflicts, n.Name) {
			if e != nil && e.File != nil {
				has[int(e.File.Size)] = true
			}
		}
	}
	return has
}

// A file that lost its name to a folder of others stays a version of the name when that folder goes on all
// other machines, and is published again for what is in it here.
func TestFolderKeepsOwnVersion(t *testing.T) {
	m := newKindsModel(t, 3)
	defer m.close()
	own, first, other := m.all[0], m.all[1], m.all[2]
	const name, below = "runs/x/1/a", "runs/x/1/a/g/h"
	m.write(first, below)
	m.does(first, pushes)
	m.does(other, pullsPacked)
	m.write(own, name)
	m.does(own, pushes)
	m.write(other, "runs/x/1") // the folder goes there, and the file is not known
	m.does(own, pullsPacked)
	m.does(other, pushes)
	m.write(own, below)
	m.does(own, looks)
	m.end()
}

// A folder that stays for what is in it takes the place of no file that others published under its name,
// though it was shown while that file was another version of the name.
func TestStayingFolderReplacesNoFile(t *testing.T) {
	m := newKindsModel(t, 3)
	defer m.close()
	own, first, other := m.all[0], m.all[1], m.all[2]
	const name = "runs/x/1"
	m.mkdir(first, name)
	m.write(own, name+"/a")
	m.does(first, pushes)
	m.write(other, name)
	m.does(other, pushes)
	m.does(own, pullsPacked) // the folder is the first's, the file another version
	m.remove(first, name)
	m.write(first, name)
	m.does(first, pushes)
	m.does(own, pullsPacked) // the folder is no one's but for what is in it
	m.end()
}

// A folder that a program made where others had put a file is published, though a look had noted that the
// name is about to get that file.
func TestFolderWhereAFileWasToBe(t *testing.T) {
	m := newKindsModel(t, 2)
	defer m.close()
	own, other := m.all[0], m.all[1]
	m.write(other, "runs/x/1/a/f")
	m.mkdir(own, "runs/x/1/a/g/h")
	m.write(own, "runs/x/1/a")
	m.does(other, pushes)
	m.does(own, pullsPacked)
	m.mkdir(own, "runs/x/1/a/f")
	m.end()
	if !m.isDir(other, "runs/x/1/a/f") {
		t.Error("the folder is not published")
	}
}

// A file goes that a machine has as it was published, once others removed a later version of it which that
// machine never saw, and nobody has a version any more that was over the one that it has.
func TestRemovedAfterUnseenVersions(t *testing.T) {
	m := newKindsModel(t, 4)
	defer m.close()
	const name = "runs/x/1/a"
	last := m.all[3]
	for i, one := range m.all[:3] {
		m.does(one, pullsPacked)
		m.write(one, name)
		m.does(one, pushes)
		if i == 0 {
			m.does(last, pullsPacked)
		}
	}
	for i, one := range m.all[:2] { // what is over nothing that anybody has is taken out of what they publish
		m.does(one, pullsPacked)
		m.write(one, fmt.Sprint("runs/x/1/", i))
		m.does(one, pushes)
	}
	m.does(m.all[2], pullsPacked)
	m.remove(m.all[2], name)
	m.does(m.all[2], pushes)
	m.does(last, pullsPacked)
	if last.exists(name) {
		t.Error("the file that was removed is still there")
	}
	m.end()
}
