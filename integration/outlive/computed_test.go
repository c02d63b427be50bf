package outlive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats/safetensors"
	"ckptfs/integration/mounttest"
)

// TestComputedReadOn: open and mapped computed files are read on after the daemon ended.
func TestComputedReadOn(t *testing.T) {
	for name, next := range map[string]func(m *mounttest.Mount){
		"killed":   func(m *mounttest.Mount) { m.Must(m.KillDaemon()) },
		"upgraded": func(m *mounttest.Mount) { m.Run("upgrade", m.Dir) },
	} {
		t.Run(name, func(t *testing.T) {
			computedReadOn(t, mounttest.New(t), next)
		})
	}
}

func computedReadOn(t *testing.T, m *mounttest.Mount, next func(*mounttest.Mount)) {
	const n = 300_000
	one, two := floats(t, n, 0x3f800000), floats(t, n, 0x40000000)
	m.Write("a.safetensors", one)
	m.Write("b.safetensors", two)
	m.Write("other.safetensors", one)
	m.Sync()
	want := map[string][]byte{}
	for _, p := range []string{"cast/bf16/a.safetensors", "cast/f16/other.safetensors",
		"soup/mean/a.safetensors/+/b.safetensors/soup.safetensors"} {
		p = ".ckptfs/make/" + p
		data, err := os.ReadFile(m.Path(p))
		m.Must(err)
		want[p] = data
	}
	open, maps := map[string]*os.File{}, map[string][]byte{}
	for p := range want {
		f, err := os.Open(m.Path(p))
		m.Must(err)
		defer f.Close()
		b, err := unix.Mmap(int(f.Fd()), 0, len(want[p]), unix.PROT_READ, unix.MAP_SHARED)
		m.Must(err)
		defer unix.Munmap(b)
		open[p], maps[p] = f, b
	}
	check := func(p string) {
		t.Helper()
		// What the kernel has of them is no answer.
		m.Must(unix.Fadvise(int(open[p].Fd()), 0, 0, unix.FADV_DONTNEED))
		got := make([]byte, len(want[p]))
		if _, err := open[p].ReadAt(got, 0); err != nil || !bytes.Equal(got, want[p]) {
			t.Errorf("%s by a descriptor: %v, %s", p, err, mounttest.Difference(want[p], got))
		}
		if !bytes.Equal(maps[p], want[p]) {
			t.Errorf("%s by a mapping: %s", p, mounttest.Difference(want[p], maps[p]))
		}
	}
	for range 2 {
		next(m)
		for p := range want {
			check(p)
			m.Want(p, want[p])
		}
	}
	// Of one whose source changes no byte of another source is read, before the daemon ends and after.
	m.Write("other.safetensors", two)
	m.Sync()
	for round := range 2 {
		for p, f := range open {
			if !strings.Contains(p, "other") {
				check(p)
				continue
			}
			m.Must(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
			got := make([]byte, len(want[p]))
			k, err := f.ReadAt(got, 0)
			if !bytes.Equal(got[:k], want[p][:k]) {
				t.Errorf("round %d: %s: %v, %s", round, p, err, mounttest.Difference(want[p], got))
			}
			if k == 0 && !errors.Is(err, unix.ESTALE) && !errors.Is(err, unix.EBADF) {
				t.Errorf("round %d: %s: %v", round, p, err)
			}
		}
		next(m)
	}
}

// floats is a safetensors file of n numbers of these bits.
func floats(t *testing.T, n int, bits uint32) []byte {
	t.Helper()
	p, err := safetensors.AppendSaved(nil, []safetensors.Entry{
		{Name: "w", DType: "F32", Shape: []int64{int64(n)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, bytes.Repeat(binary.LittleEndian.AppendUint32(nil, bits), n)...)
}
