package steps

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk/disktest"
)

// opens counts how often directories were opened since the last call.
type opens struct {
	t  *testing.T
	fd int
}

func watchOpens(t *testing.T, dirs ...string) opens {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_ONLYDIR); err != nil {
			t.Fatal(err)
		}
	}
	return opens{t, fd}
}

func (o opens) count() (n int) {
	o.t.Helper()
	buf := make([]byte, 1<<16)
	for {
		got, err := unix.Read(o.fd, buf)
		if err == unix.EAGAIN {
			return n
		}
		if err != nil {
			o.t.Fatal(err)
		}
		for p := buf[:got]; len(p) > 0; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(unsafe.SliceData(p)))
			if e.Mask&unix.IN_ISDIR != 0 {
				n++
			}
			p = p[unix.SizeofInotifyEvent+int(e.Len):]
		}
	}
}

// TestRecallWithoutList: steps that are as they were, and have files of the same names, are not listed. What
// changed is seen, whatever it is.
func TestRecallWithoutList(t *testing.T) {
	many := 50 + 2*cas.Processors
	outside := t.TempDir()
	for _, c := range []struct {
		what   string
		change func(step string) error
	}{
		{"nothing", func(string) error { return nil }},
		{"a file was written to", func(step string) error {
			return os.WriteFile(step+"/metrics.json", []byte(`{"loss": 9}`), 0o600)
		}},
		{"a file came", func(step string) error { return os.WriteFile(step+"/more", nil, 0o600) }},
		{"a folder came", func(step string) error { return os.MkdirAll(step+"/sub/sub", 0o700) }},
		{"a file went", func(step string) error { return os.Remove(step + "/metrics.json") }},
		{"a file is a folder", func(step string) error {
			err := os.Remove(step + "/metrics.json")
			if err == nil {
				err = os.Mkdir(step+"/metrics.json", 0o700)
			}
			return err
		}},
		{"a file is a link", func(step string) error {
			if err := os.Rename(step+"/metrics.json", outside+"/metrics.json"); err != nil {
				return err
			}
			return os.Symlink(outside+"/metrics.json", step+"/metrics.json")
		}},
		{"a file has the name of another", func(step string) error {
			return os.Rename(step+"/metrics.json", step+"/m.safetensors")
		}},
		{"it is a link", func(step string) error {
			if err := os.Rename(step, outside+"/step"); err != nil {
				return err
			}
			return os.Symlink(outside+"/step", step)
		}},
		{"it went", os.RemoveAll},
		{"it has another name", func(step string) error { return os.Rename(step, step+"000") }},
	} {
		root := t.TempDir()
		step := func(n int) string { return filepath.Join(root, Dir, "r", fmt.Sprint(n)) }
		for n := range many {
			if err := os.MkdirAll(step(n), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string]string{"m.safetensors": "12345",
				"metrics.json": fmt.Sprintf(`{"loss": %d}`, n)} {
				if err := os.WriteFile(filepath.Join(step(n), name), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		disktest.WaitTick(t)
		s, before, _ := lookedBy(t, root, nil)
		said := s.prints(before, 0)
		if err := c.change(step(7)); err != nil {
			t.Fatal(err)
		}
		disktest.WaitTick(t)
		dirs, err := filepath.Glob(filepath.Join(root, Dir, "r", "*"))
		if err != nil {
			t.Fatal(err)
		}
		dirs = slices.DeleteFunc(dirs, func(dir string) bool {
			st, err := os.Lstat(dir)
			return err != nil || !st.IsDir()
		})
		o := watchOpens(t, dirs...)
		_, now, _ := lookedBy(t, root, said)
		// Each goroutine lists the first that it looks at. What changed is listed, with its folders.
		if n := o.count(); n > cas.Processors+3 {
			t.Errorf("%s: %d of %d steps were listed", c.what, n, len(dirs))
		}
		_, want, _ := lookedBy(t, root, nil)
		for _, steps := range []map[string]*Step{now, want} {
			for _, st := range steps {
				st.of = nil
			}
		}
		if !reflect.DeepEqual(now, want) {
			t.Errorf("%s: %v\nwant %v", c.what, slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(want)))
		}
		if os.RemoveAll(outside) != nil || os.Mkdir(outside, 0o700) != nil {
			t.Fatal("the other folder is not empty")
		}
	}
}
