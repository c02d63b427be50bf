package mounttest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SafetensorsOf builds a file of U8 tensors in the given order, each of the same size, and the data's offset.
func SafetensorsOf(names []string, data [][]byte) (file []byte, start int) {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   [1]int `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]entry{}
	off := 0
	for i, name := range names {
		header[name] = entry{"U8", [1]int{len(data[i])}, [2]int{off, off + len(data[i])}}
		off += len(data[i])
	}
	h, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	h = append(h, bytes.Repeat([]byte(" "), (8-len(h)%8)%8)...)
	file = append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	return append(file, bytes.Join(data, nil)...), 8 + len(h)
}

// SavedBy maps what a program says that it has saved to the sums of it.
func SavedBy(t *testing.T, run, out string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		name, sum, ok := strings.Cut(s.Text(), " ")
		if !ok {
			t.Fatalf("adamw.py says %q", s.Text())
		}
		sums[filepath.Join(run, name)] = sum
	}
	return sums
}

// SameSums evicts what is there and compares it with what was written.
func (m *Mount) SameSums(sums map[string]string) {
	m.T.Helper()
	for name, want := range sums {
		m.Evict(name)
		m.WantState(name, Packed)
		p, err := os.ReadFile(m.Path(name))
		m.Must(err)
		if sum := sha256.Sum256(p); hex.EncodeToString(sum[:]) != want {
			m.T.Errorf("%s is not what was written", name)
		}
	}
}
