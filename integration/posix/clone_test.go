package posix

import (
	"bytes"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestCopiesShare: cp of a packed file inside the mount costs the store nothing and is there at once; both
// files are their own from then on.
func TestCopiesShare(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		data := mounttest.Noise(1, 20<<20+77)
		m.Write("runs/a/1/model.bin", data)
		m.Sync()
		for _, state := range []string{"resident", "evicted"} {
			if state == "evicted" {
				m.Evict("runs/a/1/model.bin")
			}
			before := m.Stats()
			m.Sh(`mkdir -p ` + state + ` && cp runs/a/1/model.bin ` + state + `/1 && cp -a runs/a/1/model.bin ` + state + `/2 && install runs/a/1/model.bin ` + state + `/3`)
			for _, name := range []string{"/1", "/2", "/3"} {
				m.WantState(state+name, "packed")
			}
			if now := m.Stats(); now.StoredBytes != before.StoredBytes {
				t.Errorf("%s: three copies took %d bytes", state, now.StoredBytes-before.StoredBytes)
			}
			m.Want(state+"/1", data)
			m.Sh(`echo more >>` + state + `/1 && truncate -s 1000000 ` + state + `/2 && rm ` + state + `/3`)
			m.Want(state+"/1", append(bytes.Clone(data), "more\n"...))
			m.Want(state+"/2", data[:1000000])
			m.Want("runs/a/1/model.bin", data)
		}
		m.Sh(`cp -r runs/a/1 runs/a/2 && rm -r runs/a/1`)
		m.Want("runs/a/2/model.bin", data)
		m.Kill()
		m.Must(m.Start())
		m.Want("runs/a/2/model.bin", data)
		m.Want("evicted/1", append(bytes.Clone(data), "more\n"...))
	})
}
