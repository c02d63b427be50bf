package volume

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// random is n bytes that nothing compresses.
func random(n int, seed uint64) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := make([]byte, n)
	rand.NewChaCha8(key).Read(p)
	return p
}

// fixture is a file that torch wrote.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("..", "..", "formats", "testdata", "torch", name))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// weights is a safetensors file of tensors of one dimension: names, and the bytes of each.
func weights(t testing.TB, names []string, data ...[]byte) []byte {
	t.Helper()
	entries := make([]safetensors.Entry, len(names))
	for i, name := range names {
		entries[i] = safetensors.Entry{Name: name, DType: formats.U8, Shape: []int64{int64(len(data[i]))}}
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range data {
		p = append(p, d...)
	}
	return p
}
