package commands

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// crowded is a safetensors file of n tensors of 64 bytes each, whose names end in tail.
func crowded(n int, tail string) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"t%d%s":{"dtype":"U8","shape":[64],"data_offsets":[%d,%d]}`, i, tail, 64*i, 64*i+64)
	}
	b.WriteByte('}')
	p := append(binary.LittleEndian.AppendUint64(nil, uint64(b.Len())), b.Bytes()...)
	return append(p, mounttest.Noise(uint64(n), 64*n)...)
}

// foreign is a file that begins as a checkpoint does, and has the names of very many tensors, but no tensors.
func foreign(n int) []byte {
	p := crowded(n, "")
	p[len(p)-64*n-1] = ' ' // the brace at the end of the header
	return p
}

// TestMemoryOfManyTensors: the daemon keeps to --memory while it packs, shows, drops, reads and checks files
// of very many tensors: one whose tensors a manifest holds, one that has too many of them, one whose header
// takes too much of --memory to be read, and one that is foreign. All are stored, and read as they were.
func TestMemoryOfManyTensors(t *testing.T) {
	const million = 1_000_000
	const program = 32 // MiB: pages of the program and of the index. Of VmHWM no peak is missed.
	for _, c := range []struct {
		name    string
		memory  int64
		format  string
		tensors int
		file    func() []byte
	}{
		{"350,000", 512, "safetensors", 350_000, func() []byte { return crowded(350_000, "") }},
		{"600,000", 1024, "safetensors", 600_000, func() []byte { return crowded(600_000, "") }},
		{"a million", 512, "blob", 0, func() []byte { return crowded(million, "") }},
		{"a million, little memory", 64, "blob", 0, func() []byte { return crowded(million, "") }},
		{"a header of 130 MB", 512, "blob", 0, func() []byte {
			return crowded(million, strings.Repeat("x", 50))
		}},
		{"foreign", 64, "blob", 0, func() []byte { return foreign(million) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mounttest.New(t, "--memory", fmt.Sprint(c.memory, "MiB"), "--hot-size", "0")
			own := watchMemory(m)
			const path = "runs/a/1/model.safetensors"
			file := c.file()
			m.Write(path, file)
			within := func(what string) {
				t.Helper()
				t.Logf("%s: %d MiB of its own, VmHWM %d MiB", what, own.peak()/mib, m.PeakRSS()/mib)
				if own.peak() > c.memory*mib || m.PeakRSS() > (c.memory+program)*mib {
					t.Errorf("%s: the daemon took %d MiB, with its program %d MiB", what, own.peak()/mib,
						m.PeakRSS()/mib)
				}
			}
			m.Sync()
			within("packed")
			if f := m.Show(path); f.Format != c.format || len(f.Tensors) != c.tensors {
				t.Errorf("%s of %d tensors, want %s of %d", f.Format, len(f.Tensors), c.format, c.tensors)
			}
			within("shown")
			m.EvictAll()
			m.Want(path, file)
			within("read")
			m.Run("check", m.Dir)
			within("checked")
		})
	}
}
