package clients

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestView: beside a torch file below runs/ a safetensors file is listed, and holds the same tensors bit for
// bit.
func TestView(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const dir = "runs/a/7"
		m.Must(os.MkdirAll(m.Path(dir), 0o755))
		files := []string{"bin.bin", "ckpt.ckpt", "pt.pt", "pth.pth"}
		for i, f := range files {
			kind := []string{"plain", "nested", "zoo", "zoo"}[i]
			mounttest.RunPython(t, "save.py", kind, "5", m.Path(dir, f))
		}
		view := func(f string) string { return m.Path(dir, f[:strings.Index(f, ".")]+".safetensors") }
		check := func(when string) {
			t.Helper()
			t.Log(when)
			m.WantNames(dir, "bin.bin", "bin.safetensors", "ckpt.ckpt", "ckpt.safetensors",
				"pt.pt", "pt.safetensors", "pth.pth", "pth.safetensors")
			for _, f := range files {
				mounttest.RunPython(t, "view.py", m.Path(dir, f), view(f))
			}
		}
		check("before packing, or while it goes on")
		m.Sync()
		check("packed and resident")
		var names []string
		for _, f := range files {
			names = append(names, dir+"/"+f)
		}
		m.Evict(names...)
		check("evicted")
		m.Remount()
		check("mounted again")
		if f := m.Show(dir + "/pt.safetensors"); !f.View || f.Format != "safetensors" {
			t.Errorf("show says view %v, format %q", f.View, f.Format)
		}

		sum := m.Sum(dir + "/pt.safetensors")
		m.Sh("cp " + dir + "/pt.safetensors copy.safetensors")
		if got := m.Sum("copy.safetensors"); got != sum {
			t.Errorf("a copy of the view has other bytes")
		}
	})
}

// TestViewFormats: the views of other formats' files hold what those formats' own libraries read.
func TestViewFormats(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	const dir = "runs/a/7"
	m.Must(os.MkdirAll(m.Path(dir), 0o755))
	mounttest.RunPython(t, "views.py", "save", m.Path(dir))
	mounttest.RunPython(t, "views.py", "check", m.Path(dir))
	m.Sync()
	files := []string{"arrays.npz", "llama.gguf", "model.keras", "net.onnx", "one.npy",
		"plain.h5", "w.weights.h5"}
	for i, f := range files {
		files[i] = dir + "/" + f
	}
	m.Evict(files...)
	mounttest.RunPython(t, "views.py", "check", m.Path(dir))
}

// TestViewGivesWay: a real file of the view's name takes its place, unlink hides it, and rm -r is not held
// up.
func TestViewGivesWay(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		for _, d := range []string{"runs/a/1", "runs/a/2", "runs/a/3", "runs/a/4"} {
			m.Must(os.MkdirAll(m.Path(d), 0o755))
			mounttest.RunPython(t, "save.py", "plain", "1", m.Path(d, "model.pt"))
		}
		m.Sync()

		// Created again, over the view's name.
		mounttest.RunPython(t, "save.py", "plain", "2", m.Path("runs/a/1/model.safetensors"))
		mounttest.RunPython(t, "check.py", "plain", "2", m.Path("runs/a/1/model.safetensors"))
		m.WantNames("runs/a/1", "model.pt", "model.safetensors")
		m.Remount()
		mounttest.RunPython(t, "check.py", "plain", "2", m.Path("runs/a/1/model.safetensors"))

		// Opened for writing, without O_CREAT and O_TRUNC: whatever was there is the file's beginning, or
		// nothing.
		f, err := os.OpenFile(m.Path("runs/a/2/model.safetensors"), os.O_WRONLY|os.O_TRUNC, 0)
		m.Must(err)
		_, err = f.WriteString("mine")
		m.Must(err)
		m.Must(f.Close())
		m.Want("runs/a/2/model.safetensors", []byte("mine"))

		m.Must(os.Remove(m.Path("runs/a/3/model.safetensors")))
		m.WantNames("runs/a/3", "model.pt")
		m.Remount()
		m.WantNames("runs/a/3", "model.pt")

		m.Sh("rm -r runs/a/4")
		if _, err := os.Stat(m.Path("runs/a/4")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after rm -r: %v", err)
		}
		mounttest.RunPython(t, "check.py", "plain", "1", m.Path("runs/a/1/model.pt"),
			m.Path("runs/a/2/model.pt"), m.Path("runs/a/3/model.pt"))
		m.Sh("rm -r runs")
		m.WantNames("")
	})
}

// TestViewFollowsItsFile: the view is that of the file as it is now, also after rewriting, renaming and
// removal.
func TestViewFollowsItsFile(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const dir = "runs/a/1"
		m.Must(os.MkdirAll(m.Path(dir), 0o755))
		pt, view := m.Path(dir, "model.pt"), m.Path(dir, "model.safetensors")
		for _, kind := range []string{"plain", "zoo", "nested"} {
			mounttest.RunPython(t, "save.py", kind, "1", pt)
			mounttest.RunPython(t, "view.py", pt, view)
			m.Evict(dir + "/model.pt")
			mounttest.RunPython(t, "view.py", pt, view)
		}
		m.Must(os.Rename(pt, m.Path(dir, "best.pt")))
		m.WantNames(dir, "best.pt", "best.safetensors")
		m.Must(os.Remove(m.Path(dir, "best.pt")))
		m.WantNames(dir)

		// No tensors, no view; and none outside of runs/.
		m.Write(dir+"/notes.pt", []byte("not a checkpoint"))
		m.Write(dir+"/noise.pt", mounttest.Noise(1, mib))
		mounttest.RunPython(t, "save.py", "plain", "1", m.Path("outside.pt"))
		m.Sync()
		m.WantNames(dir, "noise.pt", "notes.pt")
		m.WantNames("", "outside.pt", "runs")
	})
}

func TestNoViews(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--no-views")
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	mounttest.RunPython(t, "save.py", "plain", "1", m.Path("runs/a/1/model.pt"))
	m.Sync()
	m.WantNames("runs/a/1", "model.pt")
	if _, err := os.Stat(m.Path("runs/a/1/model.safetensors")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of what would be the view: %v", err)
	}
}
