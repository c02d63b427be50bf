package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestServing: a model that inference servers load, each by its own library or in its own pattern, has the
// same bytes on a mount as in a plain folder, in every state and from a remote, by two processes at a time.
func TestServing(t *testing.T) {
	e := mounttest.StartEngine(t)
	m := mounttest.New(t, "--no-views")
	var patterns []string
	m.Must(json.Unmarshal([]byte(mounttest.RunPython(t, "serving.py", "list")), &patterns))

	plain := t.TempDir()
	said := strings.Fields(mounttest.RunPython(t, "serving.py", "make", plain, fmt.Sprint(32*mib)))
	whole := said[len(said)-1]
	const step = "runs/served/1"
	m.Must(os.MkdirAll(m.Path(step), 0o755))
	m.Must(os.CopyFS(m.Path(step), os.DirFS(plain)))
	m.Sync()
	m.Join(e, "serving", "origin")
	m.Run("sync", "--remote", m.Dir)
	machines := t.TempDir()

	for _, pattern := range patterns {
		t.Run(pattern, func(t *testing.T) {
			var servers []*mounttest.Session
			for rank := range 2 {
				s := mounttest.StartSession(t, "serving.py", pattern, fmt.Sprint(rank))
				if said := s.Answer(); said != "ready" {
					mounttest.Missing(t, "%s", said)
				}
				servers = append(servers, s)
			}
			load := func(dir string) (digests [2]string) {
				for _, s := range servers {
					s.Send("check " + dir)
				}
				for i, s := range servers {
					digests[i] = s.Answer()
				}
				return digests
			}
			want := load(plain)
			parts := pattern == "columns" || strings.HasPrefix(pattern, "llama")
			for _, said := range want {
				if !strings.Contains(said, "digest") || !parts && !strings.Contains(said, whole) {
					t.Fatalf("the plain folder: %s, want %s", said, whole)
				}
			}
			same := func(state, dir string) {
				t.Helper()
				if got := load(dir); got != want {
					t.Errorf("%s: %v, want %v", state, got, want)
				}
			}

			m.EvictAll()
			m.Run("hydrate", m.Path(step))
			same("hydrated", m.Path(step))
			m.EvictAll()
			m.Remount()
			same("packed, cold", m.Path(step))
			same("packed, warm", m.Path(step))

			dir := filepath.Join(machines, pattern)
			m.Must(os.Mkdir(dir, 0o755))
			there := mounttest.Prepare(t, dir, "--no-views", "--push", "manual")
			there.Must(there.Start())
			there.Join(e, "serving", pattern)
			there.Run("fetch", there.Dir)
			same("from a remote", there.Path(step))
			there.Must(there.Stop())
		})
	}
}
