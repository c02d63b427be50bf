package volume

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/ways"
)

// person is a user as the kernel knows one: with supplementary groups.
type person struct {
	what   string
	uid    uint32
	groups []uint32 // the first is that of the process, the others are supplementary
}

// caller is the person as FUSE tells of it: by a process that has the supplementary groups.
func (p person) caller(t *testing.T) tree.Caller {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: p.uid, Gid: p.groups[0], Groups: p.groups[1:]}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return tree.Caller{UID: p.uid, GID: p.groups[0], Thread: uint32(cmd.Process.Pid)}
}

// may is what the kernel answers for an inode.
func (p person) may(a tree.Attr, need uint32) bool {
	switch {
	case p.uid == 0:
		return true
	case p.uid == a.UID:
		return a.Mode>>6&need == need
	case slices.Contains(p.groups, a.GID):
		return a.Mode>>3&need == need
	}
	return a.Mode&need == need
}

// visitor is a person in a mount with default_permissions: what it gets, the kernel lets it ask for.
type visitor struct {
	*rig
	person
	c tree.Caller
}

// walk resolves a path. The caller forgets the node.
func (v visitor) walk(p string) (*names.Node, tree.Attr, error) {
	n := v.Root()
	a, err := n.Attr()
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || err != nil {
			continue
		}
		var next *names.Node
		if !v.may(a, 1) {
			err = unix.EACCES
		} else if next, _, err = v.Volume.Lookup(v.test.Context(), v.c, n, name); err == nil {
			a, err = next.Attr()
		}
		v.forget(n)
		n = next
	}
	return n, a, err
}

// list is ls.
func (v visitor) list(p string) ([]tree.DirEntry, error) {
	n, a, err := v.walk(p)
	if err != nil {
		return nil, err
	}
	defer v.forget(n)
	if !v.may(a, 4) {
		return nil, unix.EACCES
	}
	d, err := n.OpenDir()
	if err != nil {
		return nil, err
	}
	defer d.Release()
	listed, err := v.Volume.Entries(v.c, d, 0)
	var all []tree.DirEntry
	for _, e := range listed {
		if e.Name != "." && e.Name != ".." {
			all = append(all, e.DirEntry)
		}
	}
	return all, err
}

// get is cat, or readlink.
func (v visitor) get(p string) (string, error) {
	n, a, err := v.walk(p)
	if err != nil {
		return "", err
	}
	defer v.forget(n)
	if a.Mode&unix.S_IFMT == unix.S_IFLNK {
		return n.ReadlinkFor(v.c)
	}
	if !v.may(a, 4) {
		return "", unix.EACCES
	}
	h, err := v.OpenBy(v.test.Context(), v.c, n, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer v.release(h)
	got, err := v.readHandle(h)
	return string(got), err
}

// tour lists all that can be found below a folder.
func (v visitor) tour(p string) (found []string) {
	all, _ := v.list(p)
	for _, e := range all {
		at := path.Join(p, e.Name)
		found = append(found, at)
		if e.Mode == unix.S_IFDIR {
			found = append(found, v.tour(at)...)
		}
	}
	return found
}

// sources says what may be seen, by the paths of what it is made of, which are not made up.
type sources struct {
	visitor
	ids     map[string]string             // path by artifact id
	metrics map[string]map[string]float64 // by path of a metrics.json
}

func (s sources) reach(p string) bool { return s.allowed(p, 0) }
func (s sources) read(p string) bool  { return s.allowed(p, 4) }
func (s sources) ls(p string) bool    { return s.allowed(p, 5) }

func (s sources) allowed(p string, need uint32) bool {
	n, a, err := s.walk(p)
	if err == nil {
		s.forget(n)
	}
	return err == nil && s.may(a, need)
}

// best is where a link below .ckptfs/best leads to: the step, or "".
func (s sources) best(run, link string) (step string) {
	metric, min := strings.CutSuffix(link, ".min")
	metric = strings.TrimSuffix(metric, ".max")
	if !s.ls(path.Join("runs", run)) {
		return ""
	}
	for p, m := range s.metrics {
		x, has := m[metric]
		dir := path.Dir(p)
		if !has || path.Base(path.Dir(dir)) != run || !s.ls(dir) || !s.read(p) {
			continue
		}
		best, ok := s.metrics[path.Join("runs", run, step, "metrics.json")][metric]
		if !ok || (x < best) == min {
			step = path.Base(dir)
		}
	}
	return step
}

// sees reports whether a name that is made up is to be seen.
func (s sources) sees(p string) bool {
	below, made := strings.CutPrefix(p, ".ckptfs/")
	kind, rest, _ := strings.Cut(below, "/")
	switch {
	case !made: // a view
		return s.read(strings.TrimSuffix(p, "safetensors") + "npy")
	case rest == "" || kind == "make" && ways.Of(rest) == "":
		return true
	case kind == "make":
		rest = ways.Of(rest)
		if view, ok := strings.CutSuffix(rest, "safetensors"); ok {
			return s.read(view + "npy")
		}
		return s.read(rest) || path.Ext(rest) == "" && s.reach(rest)
	case kind == "tensors" && strings.HasSuffix(path.Dir(rest), ".npy"):
		return s.read(path.Dir(rest))
	case kind == "tensors" && strings.HasSuffix(path.Dir(rest), ".safetensors"):
		return s.read(strings.TrimSuffix(path.Dir(rest), "safetensors") + "npy")
	case kind == "tensors" && strings.HasSuffix(rest, ".safetensors"):
		return s.read(strings.TrimSuffix(rest, "safetensors") + "npy")
	case kind == "tensors":
		return s.reach(rest)
	case kind == "artifacts":
		return s.read(s.ids[strings.TrimSuffix(rest, ".safetensors")])
	case kind == "latest":
		return s.ls("runs/" + rest)
	case kind == "since" && path.Ext(rest) == "":
		return s.ls("runs/"+rest) && (path.Dir(rest) == "." || s.ls("runs/"+path.Dir(rest)))
	case kind == "since": // what changed from a step to another: of two files
		from, to := path.Join("runs", path.Dir(rest)), strings.TrimSuffix(path.Base(rest), ".safetensors")
		to = path.Join(path.Dir(from), to)
		return s.ls(path.Dir(from)) && s.ls(from) && s.ls(to) &&
			s.read(from+"/m.npy") && s.read(to+"/m.npy")
	case kind == "best" && path.Dir(rest) == ".":
		return s.reach("runs/" + rest)
	case kind == "best":
		return s.best(path.Dir(rest), path.Base(rest)) != ""
	}
	return false // lcp, query: the daemon's user's
}

// lists reports whether the names in a folder that is made up may be listed.
func (s sources) lists(p string) bool {
	below, _ := strings.CutPrefix(p, ".ckptfs/")
	kind, rest, _ := strings.Cut(below, "/")
	switch kind {
	case "make":
		fixed := []string{"", "cast", "gguf", "megatron", "merge", "shard", "shard/tp=2", "sharded_state",
			"soup", "soup/sum"}
		return slices.Contains(fixed, rest) || s.read(ways.Of(rest))
	case "tensors":
		return s.read(rest)
	case "best", "latest", "since":
		return s.read(path.Join("runs", rest))
	}
	return p == ".ckptfs"
}

// npyOf is a NumPy file of these numbers.
func npyOf(all ...uint32) []byte {
	h := fmt.Sprintf("{'descr': '<u4', 'fortran_order': False, 'shape': (%d,), }", len(all))
	h += strings.Repeat(" ", 117-len(h)) + "\n"
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(h)))
	b = append(b, h...)
	for _, x := range all {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// TestVisible: whatever is made up, a user finds, lists and reads what that user could read by the path of
// its source, and nothing else. All that root finds is guessed by each of the others, and each looks around.
func TestVisible(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	r := newRig(t)
	const owner, group, rootOwner = 1000, 70, 2000
	set := func(p string, uid, gid, mode uint32) {
		t.Helper()
		r.setattr(p, &tree.SetAttr{UID: &uid, GID: &gid})
		r.setattr(p, &tree.SetAttr{Mode: &mode})
	}
	ids := map[string]string{}
	metrics := map[string]map[string]float64{}
	n := 0
	runs := []uint32{0o755, 0o750, 0o700, 0o711, 0o710, 0o705}
	for _, run := range runs {
		dir := fmt.Sprintf("runs/%o", run)
		for i, step := range []struct{ dir, file uint32 }{
			{0o755, 0o644}, {0o755, 0o640}, {0o705, 0o644}, {0o700, 0o644}, {0o711, 0o644},
			{0o755, 0o600}, {0o755, 0o604}} {
			n++
			at := fmt.Sprint(dir, "/", i)
			r.mkdir(at)
			r.write(at+"/m.npy", npyOf(uint32(n), 1))
			m := map[string]float64{"loss": float64(10 - i), fmt.Sprint("only", n): 1}
			metrics[at+"/metrics.json"] = m
			r.write(at+"/metrics.json", fmt.Appendf(nil, `{"loss": %d, "only%d": 1}`, 10-i, n))
			known := r.find(at + "/m.npy") // an id leads to files that are known
			defer r.forget(known)
			id, err := r.artifact(at + "/m.npy")
			if err != nil {
				t.Fatal(err)
			}
			ids[id] = at + "/m.npy"
			set(at+"/m.npy", owner, group, step.file)
			set(at+"/metrics.json", owner, group, step.file)
			set(at, owner, group, step.dir)
		}
		set(dir, owner, group, run)
	}
	for _, top := range []struct{ root, runs uint32 }{
		{0o755, 0o755}, {0o711, 0o755}, {0o755, 0o750}, {0o755, 0o711},
	} {
		set("", rootOwner, rootOwner, top.root)
		set("runs", rootOwner, group, top.runs)
		root := visitor{r, person{what: "root"}, tree.Caller{}}
		all := root.tour("")
		if !slices.Contains(all, ".ckptfs") {
			all = append(append(all, ".ckptfs"), root.tour(".ckptfs")...)
		}
		all = slices.DeleteFunc(all, func(p string) bool {
			return !strings.HasPrefix(p, ".ckptfs/") && !strings.HasSuffix(p, ".safetensors")
		})
		for id := range ids { // the list has those of packed files alone
			all = append(all, ".ckptfs/artifacts/"+id+".safetensors")
		}
		for _, run := range runs { // nor has it what changed between steps
			for i := range 7 {
				for _, j := range []int{(i + 1) % 7, (i + 3) % 7} {
					all = append(all, fmt.Sprintf(".ckptfs/since/%o/%d/%d.safetensors", run, i, j))
				}
			}
		}
		if len(all) < 300 {
			t.Fatalf("root finds %d names only", len(all))
		}
		for _, p := range []person{
			{"root's owner", rootOwner, []uint32{rootOwner}},
			{"owner", owner, []uint32{owner}},
			{"stranger", 3000, []uint32{3000}},
			{"in the group", 4000, []uint32{group}},
			{"in the group, too", 5000, []uint32{5000, 60, group}},
		} {
			s := sources{visitor{r, p, p.caller(t)}, ids, metrics}
			where := fmt.Sprintf("%o/%o, %s", top.root, top.runs, p.what)
			seen := 0
			for _, name := range all {
				_, _, err := s.walk(name)
				if want := s.sees(name); want != (err == nil) {
					t.Errorf("%s: %s: %v, want %v", where, name, err, want)
				}
				if n, _, err := s.walk(name); err == nil {
					s.forget(n)
					seen++
				}
				got, err := s.get(name)
				isDir := err == unix.ENXIO || err == unix.EISDIR || err == unix.EROFS
				if err == nil && !s.sees(name) {
					t.Errorf("%s: read %s: %q", where, name, got)
				}
				file := strings.Contains(name, ".npy/") || strings.Contains(name, "artifacts/")
				if file && !isDir && err != nil && s.sees(name) {
					t.Errorf("%s: read %s: %v", where, name, err)
				}
				run, link, ok := strings.Cut(strings.TrimPrefix(name, ".ckptfs/best/"), "/")
				if ok && strings.HasPrefix(name, ".ckptfs/best/") && s.sees(name) {
					if want := s.best(run, link); path.Base(got) != want {
						t.Errorf("%s: %s leads to %s, want %s", where, name, got, want)
					}
				}
			}
			for _, name := range append(s.tour(""), s.tour(".ckptfs")...) {
				made := strings.HasPrefix(name, ".ckptfs/") || strings.HasSuffix(name, ".safetensors")
				// What a folder lists without letting in is no secret there, and none here.
				listed := !strings.HasPrefix(name, ".ckptfs/") || s.lists(path.Dir(name))
				if made && (!listed || !s.sees(name) && !s.mirrored(name)) {
					t.Errorf("%s: finds %s", where, name)
				}
			}
			if seen < 20 && top.runs == 0o755 {
				t.Errorf("%s: sees %d names only", where, seen)
			}
			if _, err := s.list(".ckptfs/artifacts"); err != unix.EACCES {
				t.Errorf("%s: lists the ids: %v", where, err)
			}
			for _, p := range []string{".ckptfs/query/new", ".ckptfs/lcp/755/0", ".ckptfs/lcp/nothing"} {
				if _, _, err := s.walk(p); err != unix.EACCES {
					t.Errorf("%s: %s: %v", where, p, err)
				}
			}
		}
	}
}

// mirrored reports whether a name is that of a real one in a folder that may be listed.
func (s sources) mirrored(name string) bool {
	p, ok := strings.CutPrefix(name, ".ckptfs/tensors/")
	if made, is := strings.CutPrefix(name, ".ckptfs/make/"); is {
		p, ok = ways.Of(made), true
	}
	for _, of := range []string{"best", "since"} {
		if below, is := strings.CutPrefix(name, ".ckptfs/"+of+"/"); is {
			p, ok = "runs/"+below, true
		}
	}
	all, _ := s.list(path.Dir("/" + p))
	return ok && slices.ContainsFunc(all, func(e tree.DirEntry) bool { return e.Name == path.Base(p) })
}
