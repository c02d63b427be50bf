package commands

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestMetrics scrapes a mount that packed something.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--metrics-listen", "127.0.0.1:0")
	m.Write("x", mounttest.Noise(1, mib))
	m.Evict("x")
	m.Want("x", mounttest.Noise(1, mib))
	at := m.Status().Metrics
	resp, err := http.Get("http://" + at + "/metrics")
	m.Must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	m.Must(err)
	for _, want := range []string{
		"ckptfs_up 1\n", `ckptfs_mount_info{mode="` + m.Status().Mode + `",mountpoint="` + m.Dir + `",store="`, "ckptfs_files 1\n", "ckptfs_packed_files 1\n",
		"ckptfs_logical_bytes 1.048576e+06\n", "ckptfs_queue_files 0\n", "ckptfs_chunk_cache_misses_total ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in the metrics:\n%s", want, body)
		}
	}
	mounttest.WantSaid(t, m.Run("status", m.Dir), "http://"+at+"/metrics")

	second := mounttest.Prepare(t, t.TempDir(), "--metrics-listen", at)
	mounttest.WantSaid(t, mountFails(second), "--metrics-listen", at, "in use")
	if second.Mounted() || len(second.PIDs()) > 0 {
		t.Error("mounted, or a daemon left")
	}
}
