package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestMetrics scrapes a mount that packed something.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := newMount(t, "--metrics-listen", "127.0.0.1:0")
	m.write("x", noise(1, mib))
	m.evict("x")
	m.want("x", noise(1, mib))
	at := m.status().Metrics
	resp, err := http.Get("http://" + at + "/metrics")
	m.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	m.must(err)
	for _, want := range []string{
		"ckptfs_up 1\n", `ckptfs_mount_info{mode="` + m.status().Mode + `"} 1`, "ckptfs_files 1\n", "ckptfs_packed_files 1\n",
		"ckptfs_logical_bytes 1.048576e+06\n", "ckptfs_queue_files 0\n", "ckptfs_chunk_cache_misses_total ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in the metrics:\n%s", want, body)
		}
	}
	wantSaid(t, m.cli("status", m.Dir), "http://"+at+"/metrics")

	second := prepare(t, t.TempDir(), "--metrics-listen", at)
	wantSaid(t, second.mountFails(), "--metrics-listen", at, "in use")
	if second.Mounted() || len(second.PIDs()) > 0 {
		t.Error("mounted, or a daemon left")
	}
}
