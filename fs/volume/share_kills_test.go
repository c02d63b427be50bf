package volume

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk/killtest"
	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/s3/s3test"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// The names that scenes are about.
const (
	killModel = "runs/x/1/model.safetensors"
	killSmall = "runs/x/1/config.json"
	killSame  = "runs/x/1/same.safetensors" // others change its attributes alone
	killOld   = "runs/x/1/old.bin"          // others remove it
	killNew   = "runs/x/1/new.bin"          // others make it
	killLink  = "runs/x/latest"
	killStep  = "runs/x/1"
	killFirst = "runs/x/2/f" // it is published for the first time

	killFolder = "runs/x/1/folder" // others make it a file
	killFile   = "runs/x/1/file"   // others make it a folder
)

// scene is what a machine does while it is killed.
type scene struct {
	name  string
	begin func(a, b *machine)
	does  func(b *machine)
	own   bool     // what the machine shows is what is to be published; else what a shows
	both  []string // names of which both versions are kept

	changes int // how many it makes
}

func firstVersion(m *machine) {
	m.put(killModel, modelFile(m.test.(*testing.T), "ABC"))
	m.put(killSmall, []byte("one"))
	m.put(killSame, modelFile(m.test.(*testing.T), "SAM"))
	m.put(killOld, []byte("old"))
	m.put("runs/x/0/gone", []byte("gone"))
	m.symlink("0", killLink)
	m.put(killFolder+"/sub/f", []byte("f"))
	m.put(killFile, []byte("file"))
	m.attr(killStep, "user.a", "1")
	m.attr(killStep, "user.b", "1")
	m.published("")
}

func secondVersion(m *machine) {
	m.put(killModel, modelFile(m.test.(*testing.T), "ABD"))
	m.put(killSmall, []byte("second"))
	m.setattr(killSame, &tree.SetAttr{Mode: ptr(uint32(0o600)), Mtime: &unix.Timespec{Sec: 1e9}})
	m.unlink(killOld)
	m.put(killNew, []byte("new"))
	m.unlink("runs/x/0/gone")
	m.rmdir("runs/x/0")
	m.unlink(killLink)
	m.symlink("1", killLink)
	m.removeAll(killFolder)
	m.put(killFolder, []byte("a file"))
	m.unlink(killFile)
	m.put(killFile+"/sub/f", []byte("f"))
	m.attr(killFile, "user.a", "3")
	m.attr(killStep, "user.a", "2")
	m.attr(killStep, "user.b", "")
	m.attr(killStep, "user.c", "2")
	m.setattr(killStep, &tree.SetAttr{Mode: ptr(uint32(0o700))})
	m.published("")
}

func pulls(b *machine) {
	if _, err := b.Pull(context.Background(), "", nil); err != nil {
		b.t.Error(err)
	}
}

func pushes(b *machine) {
	if _, err := b.Push(context.Background(), "", control.PushOptions{}, nil); err != nil {
		b.t.Error(err)
	}
}

func looks(b *machine) {
	b.fetched()
	b.sharing.get().EnsureBelow(context.Background(), steps.Dir)
}

func bothHave(a, b *machine) {
	firstVersion(a)
	b.pulled("")
}

func othersChange(a, b *machine) {
	bothHave(a, b)
	secondVersion(a)
}

func bothChange(a, b *machine) {
	othersChange(a, b)
	b.write(killModel, modelFile(b.test.(*testing.T), "XYZ"))
	b.write(killSmall, []byte("own"))
}

var conflicting = []string{killSmall, killModel}

var scenes = []scene{
	{name: "pull", begin: func(a, _ *machine) { firstVersion(a) }, does: pulls},
	{name: "look", begin: func(a, _ *machine) { firstVersion(a) }, does: looks},
	{name: "pull again", begin: othersChange, does: pulls},
	{name: "look again", begin: othersChange, does: looks},
	{name: "look at stubs", begin: func(a, b *machine) {
		firstVersion(a)
		looks(b)
		secondVersion(a)
	}, does: looks},
	{name: "push", begin: func(a, b *machine) {
		bothHave(a, b)
		b.write(killModel, modelFile(b.test.(*testing.T), "XYZ"))
		b.write(killSmall, []byte("own"))
		b.put("runs/x/2/model.safetensors", modelFile(b.test.(*testing.T), "QRS"))
		b.put(killFirst, []byte("f"))
	}, does: pushes, own: true},
	{name: "remove", begin: bothHave, does: func(b *machine) {
		b.unlink(killOld)
		b.rename(killSmall, killSmall+"2")
		b.rename("runs/x/0", "runs/x/3")
		b.rename(killSame, killModel)
		pushes(b)
	}, own: true},
	{name: "conflict", begin: bothChange, both: conflicting, does: func(b *machine) {
		pushes(b)
		looks(b)
		pulls(b)
	}},
	{name: "conflict pulled", begin: bothChange, both: conflicting, does: func(b *machine) {
		pulls(b)
		pushes(b)
	}},
}

// shown is what a tree shows of a name.
type shown struct {
	mode  uint32
	mtime unix.Timespec // of files
	has   string        // bytes, target, or attributes
}

func (s shown) String() string {
	if len(s.has) > 40 {
		s.has = fmt.Sprintf("%s…%x", s.has[:8], len(s.has))
	}
	return fmt.Sprintf("%o %v %q", s.mode, s.mtime.Sec, s.has)
}

// view is what a machine's tree shows. No name is made for it.
func (m *machine) view() map[string]shown {
	m.t.Helper()
	all := map[string]shown{}
	n, err := m.resolve(steps.Dir)
	if err == unix.ENOENT {
		return all
	}
	if err != nil {
		m.t.Fatal(err)
	}
	defer n.Unpin()
	m.viewBelow(all, n, steps.Dir)
	return all
}

func (m *machine) viewBelow(all map[string]shown, dir *names.Node, at string) {
	m.t.Helper()
	list, err := dir.ListQuietly()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range list {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		p := at + "/" + e.Name
		n, _, err := m.Volume.names.Child(dir, e.Name)
		if err != nil {
			m.t.Fatal(err)
		}
		all[p] = m.shownOf(n, p)
		if n.IsDir() {
			m.viewBelow(all, n, p)
		}
		n.Unpin()
	}
}

func (m *machine) shownOf(n *names.Node, p string) (s shown) {
	m.t.Helper()
	a, err := n.Attr()
	if err != nil {
		m.t.Fatal(p, err)
	}
	s.mode = a.Mode
	switch {
	case n.IsDir():
		for _, name := range []string{"user.a", "user.b", "user.c"} {
			value := make([]byte, 8)
			if k, err := n.GetXattr(name, value); err == nil {
				s.has += name + "=" + string(value[:k]) + " "
			}
		}
	case n.File() == nil:
		s.has, err = n.Readlink()
	default:
		s.mtime = a.Mtime
		var h *Handle
		if h, err = m.Open(n, unix.O_RDONLY); err == nil {
			var p []byte
			p, err = m.readHandle(h)
			s.has = string(p)
			m.release(h)
		}
	}
	if err != nil {
		m.t.Fatal(p, err)
	}
	return s
}

const (
	sceneOf  = "CKPTFS_KILLED_SCENE"
	sceneAt  = "CKPTFS_KILLED_STORE"
	sceneURL = "CKPTFS_KILLED_REMOTE"
)

// victim is the process that is killed.
func victim(t *testing.T, name string) {
	b, err := s3.Open(t.Context(), s3.Config{Bucket: s3test.Name, Endpoint: os.Getenv(sceneURL),
		Region: "us-east-1", PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{rig: openRig(t, os.Getenv(sceneAt), func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return b, nil }
	})}
	if err := killtest.Watch(); err != nil {
		t.Fatal(err)
	}
	scenes[slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })].does(m)
	if !t.Failed() {
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
}

// killed runs what a machine does in a process of its own, and kills it before its change n.
func (s *scene) killed(t *testing.T, b *machine, url string, n int) (changes []killtest.Change, killed bool) {
	t.Helper()
	b.close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAnywhere$")
	cmd.Env = append(os.Environ(), sceneOf+"="+s.name, sceneAt+"="+b.dir, sceneURL+"="+url)
	changes, killed, err := killtest.Run(cmd, n)
	if err != nil {
		t.Fatal(err)
	}
	b.rig = openRig(t, b.dir, b.c.shared)
	return changes, killed
}

// after is what a program, or another machine, does to a name right after the restart. It returns what the
// name shows then.
type after struct {
	name string
	does func(a, b *machine, p string)
	want func(p string, was shown) map[string]shown // of a name that showed what others published last
}

func replaced(p string) []byte { return []byte("after " + p) }

// open opens a name as a kernel does that knows it.
func (m *machine) openKnown(p string, flags uint32) *Handle {
	m.t.Helper()
	n, err := m.resolve(p)
	if err != nil {
		m.t.Fatal(err)
	}
	defer n.Unpin()
	h, err := m.Open(n, flags)
	if err != nil {
		m.t.Fatal(err)
	}
	return h
}

func (m *machine) knownDir(p string) (dir *names.Node, name string) {
	m.t.Helper()
	dir, err := m.resolve(path.Dir(p))
	if err != nil {
		m.t.Fatal(err)
	}
	return dir, path.Base(p)
}

// moved is what a name becomes by a rename.
func moved(p string) string { return path.Join(path.Dir(p), "moved-"+path.Base(p)) }

var afters = []after{
	{"nothing", func(_, _ *machine, _ string) {}, func(p string, was shown) map[string]shown {
		return map[string]shown{p: was}
	}},
	{"edit", func(_, b *machine, p string) {
		h := b.openKnown(p, unix.O_WRONLY|unix.O_TRUNC)
		b.writeAt(h, replaced(p), 0)
		b.release(h)
	}, func(p string, was shown) map[string]shown {
		return map[string]shown{p: {mode: was.mode, has: string(replaced(p))}}
	}},
	{"remove", func(_, b *machine, p string) {
		dir, name := b.knownDir(p)
		defer dir.Unpin()
		if err := b.Unlink(dir, name); err != nil {
			b.t.Fatal(err)
		}
	}, func(p string, _ shown) map[string]shown { return map[string]shown{p: {}} }},
	{"rename", func(_, b *machine, p string) {
		dir, name := b.knownDir(p)
		defer dir.Unpin()
		if err := b.Rename(dir, name, dir, path.Base(moved(p)), 0); err != nil {
			b.t.Fatal(err)
		}
	}, func(p string, was shown) map[string]shown {
		return map[string]shown{p: {}, moved(p): was}
	}},
	{"chmod", func(_, b *machine, p string) {
		n, err := b.resolve(p)
		if err != nil {
			b.t.Fatal(err)
		}
		defer n.Unpin()
		if _, err := b.Setattr(n, &tree.SetAttr{Mode: ptr(uint32(0o640))}); err != nil {
			b.t.Fatal(err)
		}
	}, func(p string, was shown) map[string]shown {
		was.mode = unix.S_IFREG | 0o640
		return map[string]shown{p: was}
	}},
	{"others", func(a, _ *machine, p string) {
		a.put(p, replaced(p))
		a.published("")
	}, func(p string, was shown) map[string]shown {
		return map[string]shown{p: {mode: was.mode, has: string(replaced(p))}}
	}},
}

// TestKilledAnywhere kills a machine before each change that it makes to a file while it pulls, looks,
// publishes and removes, has a program or another machine do something right after the restart, and compares
// what all machines show then: all of them with CKPTFS_KILLS=all, which takes half an hour, else a few.
func TestKilledAnywhere(t *testing.T) {
	if name := os.Getenv(sceneOf); name != "" {
		victim(t, name)
		return
	}
	s3test.Credentials(t)
	onMemory(t)
	for i := range scenes {
		s := &scenes[i]
		for j := range afters {
			t.Run(s.name+", "+afters[j].name, func(t *testing.T) { s.anywhere(t, &afters[j], i+j) })
		}
	}
}

// onMemory puts stores where no disk is waited for, if there is such a place: what is killed relies on none.
func onMemory(t *testing.T) {
	const shm = "/dev/shm"
	probe, err := os.CreateTemp(shm, "ckptfs-*")
	if err != nil {
		return
	}
	defer os.Remove(probe.Name())
	if probe.Close(); unix.Setxattr(probe.Name(), "user.test", []byte("x"), 0) == nil {
		t.Setenv("TMPDIR", shm)
	}
}

// anywhere kills before each change, or before one of them.
func (s *scene) anywhere(t *testing.T, then *after, seed int) {
	if len(s.both) > 0 && then.name != "nothing" || s.own && then.name == "others" {
		t.Skip("who has what then is told by the other scenes")
	}
	if s.changes == 0 {
		s.changes = len(s.kill(t, then, never))
	}
	if os.Getenv("CKPTFS_KILLS") == "all" {
		for n := 0; n <= s.changes && !t.Failed(); n++ {
			s.kill(t, then, n)
		}
		return
	}
	n := s.changes // it is done
	if seed%2 == 1 {
		n = seed * 7 % s.changes
	}
	s.kill(t, then, n)
}

// never is before a change that nobody makes.
const never = 1 << 30

// kill is one kill, and what follows. It returns the changes that were made before.
func (s *scene) kill(t *testing.T, then *after, n int) []killtest.Change {
	c := newCloud(t)
	url := s3test.Start(t, &c.mu).Endpoint
	a, b := c.join("a"), c.join("b")
	defer func() { a.close(); b.close() }()
	s.begin(a, b)
	before := a.view()
	changes, killed := s.killed(t, b, url, n)
	defer func() {
		if t.Failed() {
			t.Logf("killed %v before change %d of %s:\n%v", killed, n, s.name, changes[max(0, len(changes)-12):])
		}
	}()
	seen := b.view()
	want := maps.Clone(before)
	if s.own {
		want = maps.Clone(seen)
	}
	unsure := map[string]bool{}
	for _, p := range []string{killModel, killSmall, killSame, killFirst} {
		was, there := seen[p]
		if !there && (then.name != "others" || p == killFirst) {
			continue
		}
		last := want[p]
		then.does(a, b, p)
		if last != was && then.name != "nothing" && then.name != "others" {
			unsure[p], unsure[moved(p)] = true, true
			continue
		}
		maps.Copy(want, then.want(p, last))
	}
	s.settles(t, a, b, want, unsure)
	return changes
}

// settles has both machines publish and pull, and compares what they show.
func (s *scene) settles(t *testing.T, a, b *machine, want map[string]shown, unsure map[string]bool) {
	t.Helper()
	for range 2 {
		pushes(b)
		for _, m := range []*machine{a, b} {
			pulls(m)
			looks(m)
		}
	}
	for _, m := range []*machine{a, b} {
		p, err := m.Push(context.Background(), "", control.PushOptions{}, nil)
		if err != nil || p.Names+p.Removed+len(p.Skipped) > 0 {
			t.Errorf("there is more to publish: %+v, %v", p, err)
		}
	}
	in, err := a.Conflicts(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	var conflicts []string
	for _, one := range in.Names {
		if !unsure[one.Path] {
			conflicts = append(conflicts, one.Path)
		}
	}
	if !slices.Equal(conflicts, s.both) {
		t.Errorf("conflicts %v, want %v", conflicts, s.both)
	}
	va, vb := a.view(), b.view()
	for p := range union(va, vb, want) {
		if slices.Contains(s.both, p) {
			continue
		}
		if va[p] != vb[p] {
			t.Errorf("%s: a shows %v, b %v", p, va[p], vb[p])
		}
		w := want[p]
		if w.mtime == (unix.Timespec{}) {
			w.mtime = vb[p].mtime
		}
		if vb[p] != w && !unsure[p] {
			t.Errorf("%s: %v, want %v", p, vb[p], w)
		}
	}
}

func union(all ...map[string]shown) map[string]bool {
	is := map[string]bool{}
	for _, one := range all {
		for p := range one {
			is[p] = true
		}
	}
	return is
}
