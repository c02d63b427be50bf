package clients

import (
	"encoding/json"
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

// cachexReply is what programs/clients/cachex.py answers.
type cachexReply struct {
	Bad     string
	Flush   []float64 // seconds
	Samples int
	Index   int64 // bytes
	Segment int64 // bytes
}

// TestCachex runs torchcachex's pattern: segments that are only added, and an index that each flush writes
// again beside itself and renames into place. A flush has to cost the store what is new in it, however long
// the index has become.
func TestCachex(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Must(os.Mkdir(m.Path("cache"), 0o755))
		s := mounttest.StartSession(t, "clients/cachex.py", m.Path("cache"), "1000")
		if said := s.Answer(); said != "ready" {
			mounttest.Missing(t, "%s", said)
		}
		do := func(command string) (r cachexReply) {
			t.Helper()
			said := s.Tell(command)
			if err := json.Unmarshal([]byte(said), &r); err != nil || r.Bad != "" {
				t.Fatalf("%s: %s", command, said)
			}
			return r
		}
		do("fill 40") // 40,000 samples
		m.EvictAll()
		do("read")
		const rounds = 8
		before := m.Stats()
		var wrote cachexReply
		var segments int64
		for i := range rounds {
			wrote = do("fill 1")
			segments += wrote.Segment
			m.Sync() // each index reaches the store
			if i == rounds/2 {
				m.EvictAll()
			}
		}
		grown := m.Stats().StoredBytes - before.StoredBytes
		rewritten := rounds * wrote.Index
		t.Logf("index %d bytes, written %d times; segments %d; the store grew by %d", wrote.Index, rounds, segments, grown)
		// Of an index only what stands after the old end is new, and the chunk that the old end lies in.
		if limit := segments + rewritten/4; grown > limit {
			t.Errorf("%d flushes grew the store by %d bytes: %d of segments, %d of an index that is mostly stored already", rounds, grown, segments, rewritten)
		}
		do("read")
		m.Kill()
		m.Must(m.Start())
		do("rebuild")
		m.EvictAll()
		do("rebuild")
		do("read")
	})
}
