package recipe

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

func safetensors(ts []tensor) []byte {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]entry{}
	var data [][]byte
	off := 0
	for _, t := range ts {
		dtype, shape := t.dtype, t.shape
		if dtype == "" {
			dtype, shape = "F32", []int{len(t.data) / 4}
		}
		header[t.name] = entry{dtype, shape, [2]int{off, off + len(t.data)}}
		off += len(t.data)
		data = append(data, t.data)
	}
	h, err := json.Marshal(header)
	if err != nil {
		panic(err) // strings and numbers
	}
	h = append(h, bytes.Repeat([]byte(" "), (8-len(h)%8)%8)...)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	return append(file, bytes.Join(data, nil)...)
}

// torch lays tensors out as torch.save does: a zip without compression, a pickle of the state dict in it, and
// a record for each storage, at offsets that are multiples of 64.
func torch(ts []tensor) []byte {
	var file bytes.Buffer
	w := zip.NewWriter(&file)
	add := func(name string, data []byte) {
		const fixed = 30 // of a local header
		if err := w.Flush(); err != nil {
			panic(err) // a buffer takes everything
		}
		h := &zip.FileHeader{Name: "archive/" + name, Method: zip.Store, CRC32: crc32.ChecksumIEEE(data),
			CompressedSize64: uint64(len(data)), UncompressedSize64: uint64(len(data))}
		start := file.Len() + fixed + len(h.Name) + 4
		pad := (64 - start%64) % 64
		h.Extra = append([]byte{'F', 'B', byte(pad), 0}, bytes.Repeat([]byte("Z"), pad)...)
		f, err := w.CreateRaw(h)
		if err == nil {
			_, err = f.Write(data)
		}
		if err != nil {
			panic(err)
		}
	}
	add("data.pkl", stateDict(ts))
	add("byteorder", []byte("little"))
	for i, t := range ts {
		add(fmt.Sprint("data/", i), t.data)
	}
	add("version", []byte("3\n"))
	if err := w.Close(); err != nil {
		panic(err)
	}
	return file.Bytes()
}

// stateDict is the pickle of a dict of tensors, protocol 2.
func stateDict(ts []tensor) []byte {
	text := func(s string) string {
		return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
	}
	integer := func(n int) string { return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }
	p := "\x80\x02}("
	for i, t := range ts {
		n := len(t.data) / 4
		storage := "(" + text("storage") + "ctorch\nFloatStorage\n" + text(fmt.Sprint(i)) + text("cpu") + integer(n) + "tQ"
		args := "(" + storage + integer(0) + integer(n) + "\x85" + integer(1) + "\x85\x89ccollections\nOrderedDict\n)Rt"
		p += text(t.name) + "ctorch._utils\n_rebuild_tensor_v2\n" + args + "R"
	}
	return []byte(p + "u.")
}
