package volume

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// What is remembered of runs/ is what a fresh look finds, whatever was done meanwhile.
func TestStepsAreFollowed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		defer r.close()
		names := []string{"runs", "runs/a", "runs/b", "runs/a/1", "runs/a/2", "runs/b/1", "runs/a/1/deep",
			"else", "else/1"}
		files := []string{"model.bin", "metrics.json", "user", "1.pt", "2.pt"}
		dir := rapid.OneOf(rapid.SampledFrom(names), rapid.Just("runs/a/1"))
		file := rapid.Custom(func(rt *rapid.T) string {
			return dir.Draw(rt, "dir") + "/" + rapid.SampledFrom(files).Draw(rt, "file")
		})
		file = rapid.OneOf(file, rapid.Just("runs/a/1/metrics.json"))
		if rapid.Bool().Draw(rt, "made") {
			r.mkdir("runs/a/1/deep")
			r.mkdir("runs/b/1")
			r.write("runs/a/1/metrics.json", []byte(`{"loss": 0}`))
		}
		var open []*Handle
		// Errors are right: names are missing, or taken.
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				if got, want := remembered(rt, r), lookedAtAgain(rt, r); !reflect.DeepEqual(got, want) {
					rt.Fatalf("remembered:\n%s\nfound:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			},
			"one": func(rt *rapid.T) {
				if _, err := r.steps.Of("a"); err != nil {
					rt.Fatal(err)
				}
			},
			"mkdir": func(rt *rapid.T) {
				p := dir.Draw(rt, "p")
				at := strings.LastIndexByte(p, '/')
				if d, _, err := r.lookup(p[:max(at, 0)]); err == nil {
					if n, _, err := r.Mkdir(d, p[at+1:], 0o755, tree.Caller{}); err == nil {
						r.forget(n)
					}
					r.forget(d)
				}
			},
			"write": func(rt *rapid.T) {
				p := file.Draw(rt, "p")
				if !r.exists(path.Dir(p)) {
					return
				}
				h, err := r.openFile(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
				if err != nil {
					return
				}
				r.writeAt(h, fmt.Appendf(nil, `{"loss": %d}`, rapid.IntRange(1, 99).Draw(rt, "loss")), 0)
				if rapid.Bool().Draw(rt, "stays open") {
					open = append(open, h)
				} else {
					r.release(h)
				}
			},
			"release": func(*rapid.T) {
				for _, h := range open {
					r.release(h)
				}
				open = nil
			},
			"rename": func(rt *rapid.T) {
				from, to := rapid.OneOf(dir, file).Draw(rt, "from"), rapid.OneOf(dir, file).Draw(rt, "to")
				flags := rapid.SampledFrom([]uint32{0, unix.RENAME_EXCHANGE, unix.RENAME_NOREPLACE}).Draw(rt,
					"flags")
				if r.exists(path.Dir(from)) && r.exists(path.Dir(to)) {
					_ = r.tryRename(from, to, flags)
				}
			},
			"remove": func(rt *rapid.T) {
				p := rapid.OneOf(dir, file).Draw(rt, "p")
				at := strings.LastIndexByte(p, '/')
				if d, _, err := r.lookup(p[:max(at, 0)]); err == nil {
					if r.Unlink(d, p[at+1:]) != nil {
						_ = r.Rmdir(d, p[at+1:])
					}
					r.forget(d)
				}
			},
			"link": func(rt *rapid.T) {
				n, _, err := r.lookup(file.Draw(rt, "from"))
				if err != nil {
					return
				}
				defer r.forget(n)
				p := file.Draw(rt, "to")
				at := strings.LastIndexByte(p, '/')
				if d, _, err := r.lookup(p[:at]); err == nil {
					if _, err := r.Link(n, d, p[at+1:]); err == nil {
						r.forget(n)
					}
					r.forget(d)
				}
			},
			"attribute": func(rt *rapid.T) {
				n, _, err := r.lookup(rapid.OneOf(dir, file).Draw(rt, "p"))
				if err != nil {
					return
				}
				defer r.forget(n)
				switch rapid.IntRange(0, 3).Draw(rt, "which") {
				case 0:
					_ = r.RemoveXattr(n, "user.metric.x")
				case 1:
					_, _ = r.Setattr(n, &tree.SetAttr{
						Mtime: &unix.Timespec{Sec: rapid.Int64Range(1, 1000).Draw(rt, "time")}})
				case 2:
					size := rapid.Int64Range(0, 50).Draw(rt, "size")
					_, _ = r.Setattr(n, &tree.SetAttr{Size: &size})
				default:
					_ = r.SetXattr(n, "user.metric.x", fmt.Append(nil, rapid.IntRange(1, 9).Draw(rt, "x")), 0)
				}
			},
			"sync": func(*rapid.T) { r.sync() },
		})
		for _, h := range open {
			r.release(h)
		}
	})
}

// remembered describes all steps.
func remembered(rt *rapid.T, r *rig) (out []string) {
	found, err := r.steps.Of()
	if err != nil {
		rt.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, name)
		for _, s := range found[name] {
			// Of a file that is open for writing neither the size nor what it holds is promised.
			size, metrics := s.Size, fmt.Sprint(s.Metrics, s.Problem)
			if beingWritten(r, s) {
				size, metrics = 0, ""
			}
			var files []string
			for _, f := range s.Files.All() {
				files = append(files, fmt.Sprint(f.Rel, " ", f.Ino))
			}
			out = append(out, fmt.Sprintln(" ", s.Name, s.Dirs, files, size, s.Time.IsZero(), metrics,
				s.Declared()))
		}
	}
	return out
}

// lookedAtAgain is remembered of a new Steps, which knows nothing yet.
func lookedAtAgain(rt *rapid.T, r *rig) []string {
	was := r.steps
	defer func() { r.steps = was }()
	r.steps = steps.New(was.Options)
	r.steps.Open(r.names.RootFd())
	return remembered(rt, r)
}

// beingWritten reports whether a file of a step has a writer.
func beingWritten(r *rig, s *steps.Step) bool {
	for _, f := range s.Files.All() {
		if open, _ := r.steps.Writing.State(f.Ino); open {
			return true
		}
	}
	return false
}
