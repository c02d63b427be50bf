package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
)

// partial measures what reading a part of a packed checkpoint takes of the segments.
func (b *bench) partial() error {
	const name = "partial.safetensors"
	path := filepath.Join(b.daemon.Dir, name)
	if _, err := b.pythonRun("payload.py", fmt.Sprint(b.size), filepath.Join(b.plain, "partial.pt"),
		path); err != nil {
		return err
	}
	if err := b.sync(); err != nil {
		return err
	}
	var rows [][]string
	for _, how := range [][2]string{
		{"map", "1 MiB of a tensor, `.npy` mapped"}, {"slice", "1 MiB of a tensor, `get_slice`"},
		{"tensor", "a tensor, `.npy`"}, {"get", "a tensor, `get_tensor`"}, {"all", "the file, `load_file`"},
	} {
		var read, wall sample
		var asked int64
		for range b.rounds {
			if err := errors.Join(b.remount("--hot-size", "0", "--metrics-listen", "127.0.0.1:0"),
				b.evictAll(), b.coolStore()); err != nil {
				return err
			}
			before, err := b.segmentsRead()
			if err != nil {
				return err
			}
			out, err := b.pythonRun("partial.py", path, filepath.Join(b.daemon.Dir, ".ckptfs",
				"tensors", name), how[0])
			if err != nil {
				return err
			}
			var r struct {
				Bytes   int64
				Seconds float64
			}
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				return err
			}
			after, err := b.segmentsRead()
			if err != nil {
				return err
			}
			read.add((after - before) / (1 << 20))
			wall.add(r.Seconds * 1e3)
			asked = r.Bytes
		}
		rows = append(rows, []string{how[1], bytesText(asked), read.text(), wall.text()})
	}
	table(fmt.Sprintf("Reading a part of a packed file of %s with tensors of 16 MiB, all cold", bytesText(b.size)),
		[]string{"", "wanted", "MiB read from segments", "ms"}, rows)
	return nil
}

// segmentsRead is what the daemon has read of records so far, in bytes.
func (b *bench) segmentsRead() (float64, error) {
	var status struct {
		Metrics string `json:"metrics"`
	}
	if err := b.json(&status, "status", "--json", b.daemon.Dir); err != nil {
		return 0, err
	}
	resp, err := http.Get("http://" + status.Metrics + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if v, ok := strings.CutPrefix(line, "ckptfs_segment_read_bytes_total "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, errors.New("the metrics do not say what was read from segments")
}
