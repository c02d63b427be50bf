package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"ckptfs/fs/control"
)

// sample is a source with something of everything.
type sample struct{ stuck chan struct{} }

func (s *sample) Stats(context.Context) (*control.Stats, error) {
	return &control.Stats{Files: 21, LogicalBytes: 1 << 30, PlainBytes: 7,
		Runs: make([]control.RunStats, 2)}, nil
}

func (s *sample) Status(context.Context) (*control.Status, error) {
	if s.stuck != nil {
		<-s.stuck
	}
	old := time.Now().Add(-time.Hour)
	return &control.Status{Mode: control.ModePassthrough, Started: time.Unix(1000, 0),
		Store: "/s", Mountpoint: "/m",
		Queue:    control.Queue{Files: 3, Bytes: 5},
		Failures: []control.Failure{{}}, PackingWaits: "other programs",
		Upkeep: control.Upkeep{DiskBytes: 100, FreeBytes: 40, QueuedSince: &old,
			LastPrune: &control.LastPrune{At: time.Unix(2000, 0)},
			LastCheck: &control.LastCheck{At: time.Unix(3000, 0), Problems: 6}},
		Remote: &control.RemoteStatus{LastContact: time.Unix(4000, 0), LastCommit: time.Unix(5000, 0),
			Offline: &control.Offline{}, Conflicts: new(int),
			Unpublished: &control.Unpublished{Files: 8, Bytes: 9}}}, nil
}

func (s *sample) Runs(context.Context) (*control.RunList, error) {
	return &control.RunList{Runs: []control.Run{{Torn: 2}, {}, {Torn: 1}}}, nil
}

func (s *sample) Counters() *control.Counters {
	return &control.Counters{
		PackedFiles: 4, PackSeconds: 1.5, CacheHits: 9,
		Opens:    map[string]int64{"passthrough": 2},
		Reads:    map[string]control.Reads{"packed": {Calls: 3, Bytes: 4096}},
		Segments: control.Reads{Calls: 2, Bytes: 1000},
		Errors:   map[string]int64{"pack": 1},
	}
}

func scrape(t *testing.T, src Source) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(t.Context(), src, Build{Version: "1.2.3", Revision: "abc"}).ServeHTTP(w,
		httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestValues(t *testing.T) {
	out := scrape(t, &sample{})
	for _, want := range []string{
		`ckptfs_build_info{go="go`, `version="1.2.3"`, "ckptfs_up 1", "ckptfs_start_time_seconds 1000", `ckptfs_mount_info{mode="passthrough",mountpoint="/m",store="/s"} 1`,
		"ckptfs_disk_bytes 100", "ckptfs_disk_free_bytes 40", "ckptfs_queue_age_seconds 3600.", "ckptfs_packing_held 1",
		"ckptfs_last_prune_timestamp_seconds 2000", "ckptfs_last_check_timestamp_seconds 3000", "ckptfs_last_check_problems 6",
		"ckptfs_remote_up 0", "ckptfs_remote_blocked 0", "ckptfs_remote_last_contact_timestamp_seconds 4000",
		"ckptfs_remote_last_commit_timestamp_seconds 5000", "ckptfs_remote_unpublished_files 8",
		"ckptfs_remote_unpublished_bytes 9", "ckptfs_remote_conflicts 0", "ckptfs_remote_manual 0",
		"ckptfs_runs 2", "ckptfs_torn_steps 3",
		"ckptfs_queue_files 3", "ckptfs_queue_bytes 5", "ckptfs_failing_files 1", "ckptfs_files 21", "ckptfs_logical_bytes 1.073741824e+09",
		"ckptfs_plain_bytes 7", "ckptfs_packed_files_total 4", "ckptfs_pack_seconds_total 1.5", `ckptfs_opens_total{mode="passthrough"} 2`,
		`ckptfs_reads_total{source="packed"} 3`, `ckptfs_read_bytes_total{source="packed"} 4096`, `ckptfs_errors_total{kind="pack"} 1`, "ckptfs_segment_read_bytes_total 1000",
		"ckptfs_chunk_cache_hits_total 9", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(out, "\n"+want) && !strings.Contains(out, want+"\n") &&
			!strings.Contains(out, want) {
			t.Errorf("no %s", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(out)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "ckptfs_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// The document lists what is exported, with its type, and nothing else.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(ckptfs_[a-z_]+)` \\| ([a-z]+) \\| ?([a-z]*) \\|").FindAllStringSubmatch(string(doc), -1) {
		said[m[1]] = m[2]
		for _, unit := range []string{"bytes", "seconds", "files"} {
			if strings.HasSuffix(strings.TrimSuffix(m[1], "_total"), "_"+unit) && m[3] != unit {
				t.Errorf("%s is said to be in %s", m[1], m[3])
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (ckptfs_[a-z_]+) ([a-z]+)$`).FindAllStringSubmatch(scrape(t, &sample{}), -1) {
		if said[m[1]] != m[2] {
			t.Errorf("%s is a %s, and documented as %q", m[1], m[2], said[m[1]])
		}
		delete(said, m[1])
	}
	for name := range said {
		t.Errorf("%s is documented, and there is none", name)
	}
}

// A volume that hangs does not hang the scrape.
func TestStuckVolume(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as when patience is over
	stuck := make(chan struct{})
	defer close(stuck)
	if newCollector(ctx, &sample{stuck}).status() != nil {
		t.Error("an answer from a volume that gives none")
	}
}

func TestSurvey(t *testing.T) {
	now := time.Unix(0, 0)
	counts := 0
	var fail error
	s := &survey{ctx: t.Context(), now: func() time.Time { return now }}
	s.count = func(context.Context) (*whole, error) {
		counts++
		now = now.Add(time.Second) // a count of a second is good for a hundred
		return &whole{Stats: control.Stats{Files: int64(counts)}}, fail
	}
	get := func(files int64) {
		t.Helper()
		st, _ := s.get()
		s.mu.Lock()
		running := s.running
		s.mu.Unlock()
		if running != nil {
			<-running
			st, _ = s.get()
		}
		if st == nil || st.Files != files {
			t.Errorf("at %v: %+v, want %d files", now.Unix(), st, files)
		}
	}
	get(1)
	now = now.Add(99 * time.Second)
	get(1)
	now = now.Add(2 * time.Second)
	get(2)
	fail = errors.New("gone")
	now = now.Add(200 * time.Second)
	get(2)
}
