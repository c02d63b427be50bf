package npy

import (
	"io"
	"strings"
	"unicode/utf8"

	"ckptfs/formats"
	"ckptfs/formats/zipdir"
)

// ZipFormat is the entry of .npz files in the table of formats.
var ZipFormat = formats.Format{
	Parser:  Zip{},
	Sniff:   zipdir.Sniff,
	Names:   []formats.Name{{Name: Zip{}.Name()}},
	Endings: []string{".npz"},
	Views:   []string{".npz"},
}

// Zip is the parser of .npz files.
type Zip struct{}

// Name returns "npz".
func (Zip) Name() string { return "npz" }

const suffix = ".npy"

// Parse returns the layout of a zip of .npy files.
func (z Zip) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	records, err := zipdir.Read(r, size)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, reject("no entries")
	}
	seen := make(map[string]bool, len(records))
	for i := range records {
		name := records[i].Name
		if !strings.HasSuffix(name, suffix) || seen[name] || !utf8.ValidString(name) {
			return nil, reject("entry %.64q", name)
		}
		seen[name] = true
	}
	zipdir.SortByOffset(records)
	l := &formats.Layout{Format: z.Name()}
	for i := range records {
		rec := &records[i]
		if !rec.Stored() {
			l.Leave("arrays are compressed")
			continue
		}
		body := io.NewSectionReader(r, rec.Off, rec.Len)
		inner, err := parseOne(body, rec.Len, strings.TrimSuffix(rec.Name, suffix))
		if err != nil {
			return nil, err
		}
		l.Fill(rec.Off)
		l.Place(inner, "")
	}
	l.Fill(size)
	return l, nil
}

// parseOne returns the layout of an entry, which holds exactly one array and is Blob when we don't know its
// type.
func parseOne(r io.ReaderAt, size int64, name string) (*formats.Layout, error) {
	l := &formats.Layout{}
	h, err := readHeader(r, 0, size)
	if err != nil {
		return nil, err
	}
	l.Fill(h.len)
	if h.opaque {
		l.Leave(pickled)
		l.Fill(size)
		return l, nil
	}
	end, err := h.add(l, name, 0, size)
	if err == nil && end != size {
		err = reject("entry %.64q: %d bytes after the array", name, size-end)
	}
	return l, err
}
