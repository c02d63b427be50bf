package integration

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestView: beside a torch file below runs/ a safetensors file is listed, and holds the same tensors bit for bit.
func TestView(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		const dir = "runs/a/7"
		m.must(os.MkdirAll(m.path(dir), 0o755))
		files := []string{"bin.bin", "ckpt.ckpt", "pt.pt", "pth.pth"}
		for i, f := range files {
			kind := []string{"plain", "nested", "zoo", "zoo"}[i]
			runPython(t, "save.py", kind, "5", m.path(dir, f))
		}
		view := func(f string) string { return m.path(dir, f[:strings.Index(f, ".")]+".safetensors") }
		check := func(when string) {
			t.Helper()
			t.Log(when)
			m.wantNames(dir, "bin.bin", "bin.safetensors", "ckpt.ckpt", "ckpt.safetensors",
				"pt.pt", "pt.safetensors", "pth.pth", "pth.safetensors")
			for _, f := range files {
				runPython(t, "view.py", m.path(dir, f), view(f))
			}
		}
		check("before packing, or while it goes on")
		m.sync()
		check("packed and resident")
		var names []string
		for _, f := range files {
			names = append(names, dir+"/"+f)
		}
		m.evict(names...)
		check("evicted")
		m.remount()
		check("mounted again")
		if f := m.show(dir + "/pt.safetensors"); !f.View || f.Format != "safetensors" {
			t.Errorf("show says view %v, format %q", f.View, f.Format)
		}

		sum := m.sum(dir + "/pt.safetensors")
		m.sh("cp " + dir + "/pt.safetensors copy.safetensors")
		if got := m.sum("copy.safetensors"); got != sum {
			t.Errorf("a copy of the view has other bytes")
		}
	})
}

// TestViewFormats: the views of other formats' files hold what those formats' own libraries read.
func TestViewFormats(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	const dir = "runs/a/7"
	m.must(os.MkdirAll(m.path(dir), 0o755))
	runPython(t, "views.py", "save", m.path(dir))
	runPython(t, "views.py", "check", m.path(dir))
	m.sync()
	files := []string{"arrays.npz", "llama.gguf", "model.keras", "net.onnx", "one.npy", "plain.h5", "w.weights.h5"}
	for i, f := range files {
		files[i] = dir + "/" + f
	}
	m.evict(files...)
	runPython(t, "views.py", "check", m.path(dir))
}

// TestViewGivesWay: a real file of the view's name takes its place, unlink hides it, and rm -r is not held up.
func TestViewGivesWay(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		for _, d := range []string{"runs/a/1", "runs/a/2", "runs/a/3", "runs/a/4"} {
			m.must(os.MkdirAll(m.path(d), 0o755))
			runPython(t, "save.py", "plain", "1", m.path(d, "model.pt"))
		}
		m.sync()

		// Created anew, over the view's name.
		runPython(t, "save.py", "plain", "2", m.path("runs/a/1/model.safetensors"))
		runPython(t, "check.py", "plain", "2", m.path("runs/a/1/model.safetensors"))
		m.wantNames("runs/a/1", "model.pt", "model.safetensors")
		m.remount()
		runPython(t, "check.py", "plain", "2", m.path("runs/a/1/model.safetensors"))

		// Opened for writing, without O_CREAT and O_TRUNC: whatever was there is the file's beginning, or nothing.
		f, err := os.OpenFile(m.path("runs/a/2/model.safetensors"), os.O_WRONLY|os.O_TRUNC, 0)
		m.must(err)
		_, err = f.WriteString("mine")
		m.must(err)
		m.must(f.Close())
		m.want("runs/a/2/model.safetensors", []byte("mine"))

		m.must(os.Remove(m.path("runs/a/3/model.safetensors")))
		m.wantNames("runs/a/3", "model.pt")
		m.remount()
		m.wantNames("runs/a/3", "model.pt")

		m.sh("rm -r runs/a/4")
		if _, err := os.Stat(m.path("runs/a/4")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after rm -r: %v", err)
		}
		runPython(t, "check.py", "plain", "1", m.path("runs/a/1/model.pt"), m.path("runs/a/2/model.pt"), m.path("runs/a/3/model.pt"))
		m.sh("rm -r runs")
		m.wantNames("")
	})
}

// TestViewFollowsItsFile: the view is that of the file as it is now, also after rewriting, renaming and removal.
func TestViewFollowsItsFile(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		const dir = "runs/a/1"
		m.must(os.MkdirAll(m.path(dir), 0o755))
		pt, view := m.path(dir, "model.pt"), m.path(dir, "model.safetensors")
		for _, kind := range []string{"plain", "zoo", "nested"} {
			runPython(t, "save.py", kind, "1", pt)
			runPython(t, "view.py", pt, view)
			m.evict(dir + "/model.pt")
			runPython(t, "view.py", pt, view)
		}
		m.must(os.Rename(pt, m.path(dir, "best.pt")))
		m.wantNames(dir, "best.pt", "best.safetensors")
		m.must(os.Remove(m.path(dir, "best.pt")))
		m.wantNames(dir)

		// No tensors, no view; and none outside of runs/.
		m.write(dir+"/notes.pt", []byte("not a checkpoint"))
		m.write(dir+"/noise.pt", noise(1, mib))
		runPython(t, "save.py", "plain", "1", m.path("outside.pt"))
		m.sync()
		m.wantNames(dir, "noise.pt", "notes.pt")
		m.wantNames("", "outside.pt", "runs")
	})
}

func TestNoViews(t *testing.T) {
	t.Parallel()
	m := newMount(t, "--no-views")
	m.must(os.MkdirAll(m.path("runs/a/1"), 0o755))
	runPython(t, "save.py", "plain", "1", m.path("runs/a/1/model.pt"))
	m.sync()
	m.wantNames("runs/a/1", "model.pt")
	if _, err := os.Stat(m.path("runs/a/1/model.safetensors")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of what would be the view: %v", err)
	}
}
