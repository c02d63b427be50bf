package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// payload is a checkpoint that torch or safetensors wrote, in memory, with the places of its tensors' bytes.
type payload struct {
	format string
	ext    string
	bytes  []byte
	data   [][]byte // the tensors, as parts of bytes
	stamps uint64
}

// payloads lets the real libraries write a checkpoint of the given size in both formats.
func (b *bench) payloads() ([]*payload, error) {
	pt, st := filepath.Join(b.plain, "payload.pt"), filepath.Join(b.plain, "payload.safetensors")
	if _, err := b.pythonRun("payload.py", fmt.Sprint(b.size), pt, st); err != nil {
		return nil, err
	}
	var all []*payload
	for _, p := range []*payload{{format: "torch-zip", ext: ".pt"},
		{format: "safetensors", ext: ".safetensors"}} {
		var err error
		path := filepath.Join(b.plain, "payload"+p.ext)
		if p.bytes, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		if p.ext == ".pt" {
			err = p.findZip()
		} else {
			err = p.findSafetensors()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func (p *payload) findZip() error {
	r, err := zip.NewReader(bytes.NewReader(p.bytes), int64(len(p.bytes)))
	if err != nil {
		return err
	}
	for _, f := range r.File {
		if strings.Contains(f.Name, "/data/") {
			off, err := f.DataOffset()
			if err != nil {
				return err
			}
			p.data = append(p.data, p.bytes[off:off+int64(f.UncompressedSize64)])
		}
	}
	return nil
}

func (p *payload) findSafetensors() error {
	n := binary.LittleEndian.Uint64(p.bytes)
	var header map[string]struct {
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(p.bytes[8:8+n], &header); err != nil {
		return err
	}
	for _, t := range header {
		start := int64(8 + n)
		p.data = append(p.data, p.bytes[start+t.Offsets[0]:start+t.Offsets[1]])
	}
	return nil
}

// change makes the first part of the tensors' bytes new: the weights change places, so that they are no small
// difference from those before, and each 4 KiB of them have a number that was never there.
func (p *payload) change(part float64) {
	left := int(part * float64(len(p.bytes)))
	for _, d := range p.data {
		d = d[:min(left, len(d))&^3]
		left -= len(d)
		if len(d) == 0 {
			return
		}
		p.stamps++
		by := 4 * int(p.stamps*0x9e3779b97f4a7c15%uint64(len(d)/4))
		copy(d, slices.Concat(d[by:], d[:by]))
		for off := 0; off+8 <= len(d); off += 4096 {
			p.stamps++
			binary.LittleEndian.PutUint64(d[off:], p.stamps*0x9e3779b97f4a7c15)
		}
	}
}
