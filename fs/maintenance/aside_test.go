package maintenance

import (
	"os"
	"path/filepath"
	"testing"

	"ckptfs/cas/disk"
)

// A link in lost+found leads no file out of the store.
func TestMoveAside(t *testing.T) {
	for _, link := range []string{"", "lost+found", "lost+found/tree", "lost+found/tree/profile.d"} {
		t.Run(link, func(t *testing.T) {
			dir, out := t.TempDir(), t.TempDir()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			from := filepath.Join(dir, "tree/profile.d/x.sh")
			must(os.MkdirAll(filepath.Dir(from), 0o755))
			must(os.WriteFile(from, []byte("evil"), 0o755))
			must(os.MkdirAll(filepath.Join(out, "tree/profile.d"), 0o755))
			if link != "" {
				must(os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o700))
				must(os.Symlink(out, filepath.Join(dir, link)))
			}
			d, err := disk.OpenFolder(dir)
			must(err)
			defer d.Close()
			root, err := d.OpenDir("tree")
			must(err)
			defer root.Close()
			to, err := moveAside(d, int(root.Fd()), "profile.d/x.sh")
			if link == "" {
				must(err)
				must(os.WriteFile(from, []byte("again"), 0o755))
				second, err := moveAside(d, int(root.Fd()), "profile.d/x.sh")
				must(err)
				if second != to+".1" {
					t.Errorf("moved to %s, then to %s", to, second)
				}
				return
			}
			if err == nil {
				t.Errorf("moved to %s", to)
			}
			if _, err := os.Lstat(from); err != nil {
				t.Error(err)
			}
		})
	}
}
