package safetensors

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"ckptfs/formats"
)

// TestFind: each tensor that Parse finds Find finds, by itself, or says that it cannot tell.
func TestFind(t *testing.T) {
	sure := 0
	for path, p := range fixtures(t) {
		l, err := parse(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Tensors {
			want := &l.Tensors[i]
			got, err := find(p, want.Name)
			if errors.Is(err, ErrUnsure) {
				continue
			}
			if err != nil || got == nil {
				t.Fatalf("%s: %q: %v, %v", path, want.Name, got, err)
			}
			have, region := got.Tensors[0], got.Regions[got.Tensors[0].Region]
			if region != l.Regions[want.Region] {
				t.Errorf("%s: %q lies at %v, want %v", path, want.Name, region, l.Regions[want.Region])
			}
			if have.Region = want.Region; !reflect.DeepEqual(&have, want) {
				t.Errorf("%s: %+v, want %+v", path, have, want)
			}
			sure++
		}
		if got, err := find(p, "no such name"); got != nil || err != nil && !errors.Is(err, ErrUnsure) {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if sure < 10 {
		t.Errorf("%d tensors were found", sure)
	}
}

func find(p []byte, name string) (*formats.Layout, error) {
	return Find(bytes.NewReader(p), int64(len(p)), func(b []byte) bool { return string(b) == name })
}

// TestFindRefuses: Find accepts no file that Parse refuses.
func TestFindRefuses(t *testing.T) {
	for _, header := range []string{
		`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`,
		`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`,
		`{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`,
		`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}x`,
		`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,8]}}`,
		`{"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}}`,
		`{"a":{"dtype":"X8","shape":[8],"data_offsets":[0,8]}}`,
	} {
		p := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header+"12345678"...)
		if _, err := parse(p); err == nil {
			t.Fatalf("%s is parsed", header)
		}
		if l, err := find(p, "a"); err == nil {
			t.Errorf("%s: %v", header, l)
		}
	}
}
