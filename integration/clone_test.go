package integration

import (
	"bytes"
	"testing"
)

// TestCopiesShare: cp of a packed file inside the mount costs the store nothing and is there at once; both files are their
// own from then on.
func TestCopiesShare(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		data := noise(1, 20<<20+77)
		m.write("runs/a/1/model.bin", data)
		m.sync()
		for _, state := range []string{"resident", "evicted"} {
			if state == "evicted" {
				m.evict("runs/a/1/model.bin")
			}
			before := m.stats()
			m.sh(`mkdir -p ` + state + ` && cp runs/a/1/model.bin ` + state + `/1 && cp -a runs/a/1/model.bin ` + state + `/2 && install runs/a/1/model.bin ` + state + `/3`)
			for _, name := range []string{"/1", "/2", "/3"} {
				m.wantState(state+name, "packed")
			}
			if now := m.stats(); now.StoredBytes != before.StoredBytes {
				t.Errorf("%s: three copies took %d bytes", state, now.StoredBytes-before.StoredBytes)
			}
			m.want(state+"/1", data)
			m.sh(`echo more >>` + state + `/1 && truncate -s 1000000 ` + state + `/2 && rm ` + state + `/3`)
			m.want(state+"/1", append(bytes.Clone(data), "more\n"...))
			m.want(state+"/2", data[:1000000])
			m.want("runs/a/1/model.bin", data)
		}
		m.sh(`cp -r runs/a/1 runs/a/2 && rm -r runs/a/1`)
		m.want("runs/a/2/model.bin", data)
		m.kill9()
		m.must(m.Start())
		m.want("runs/a/2/model.bin", data)
		m.want("evicted/1", append(bytes.Clone(data), "more\n"...))
	})
}
