package remote

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/golden"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func example() Joined {
	return Joined{
		Address: Address{Bucket: "models", Prefix: "team/a/", Endpoint: "https://s3.example.org",
			Region: "eu-central-1", PathStyle: true, Profile: "training"},
		ID: record.ID{15: 7}, Writer: "gpu-17.5f4e3d2c"}
}

func TestGolden(t *testing.T) {
	f := Format{ID: record.ID{0: 1, 15: 255}, Created: noon}
	golden.Same(t, "format.txt", string(f.Encode()))
	golden.Same(t, "joined.txt", string(example().Encode()))
	golden.Same(t, "bucket-policy.json", example().BucketPolicy())
	for _, r := range []Role{Reader, Writer, Collector} {
		p, err := example().Policy(r)
		if err != nil {
			t.Fatal(err)
		}
		golden.Same(t, string(r)+"-policy.json", p)
	}
	if _, err := example().Policy("owner"); err == nil || !strings.Contains(err.Error(), "reader, writer, collector") {
		t.Errorf("a role that does not exist: %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for s, want := range map[string]Address{
		"s3://models":            {Bucket: "models"},
		"s3://models/":           {Bucket: "models"},
		"s3://models/team":       {Bucket: "models", Prefix: "team/"},
		"s3://models/team/b.2_x": {Bucket: "models", Prefix: "team/b.2_x/"},
		"s3://models/team/":      {Bucket: "models", Prefix: "team/"},
	} {
		got, err := ParseURL(s)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
		}
		if again, err := ParseURL(got.URL()); err != nil || again != want {
			t.Errorf("%s: written as %s it is %+v, %v", s, got.URL(), again, err)
		}
	}
	for s, want := range map[string]string{"https://h.example/team": "https://h.example/team",
		"http://127.0.0.1:80/a/b/": "http://127.0.0.1:80/a/b", "https://h": "https://h"} {
		got, err := ParseURL(s)
		if err != nil || !got.ReadOnly() || got.URL() != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
		if again, err := ParseURL(got.URL()); err != nil || again != got {
			t.Errorf("%s: written as %s it is %+v, %v", s, got.URL(), again, err)
		}
	}
	for _, s := range []string{"", "models", "/models/x", "https://u:p@h/x", "https://h/x?y=z", "https:///x",
		"s3:models", "s3://", "s3:///x",
		"s3://M/x",
		"s3://models/../x", "s3://models/a/./b", "s3://models/a//b", "s3://models/a?b=c", "s3://models/a#b",
		"s3://models/a b", "s3://models/%00", "s3://models/ä", "s3://user@models/x",
		"s3://models/" + strings.Repeat("x", 1000)} {
		if got, err := ParseURL(s); err == nil {
			t.Errorf("%q is taken as %+v", s, got)
		}
	}
	for _, s := range []string{"s3://user:hidden@models/x", "s3://user:hidden@mod els/x"} {
		if _, err := ParseURL(s); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v", err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint       string
		fit, fitUnsafe bool
	}{
		{"", true, true}, {"https://s3.example.org", true, true}, {"https://s3.example.org:9000/", true, true},
		{"http://127.0.0.1:9000", true, true}, {"http://localhost:9000", true, true}, {"http://[::1]:9000", true, true},
		{"http://s3.example.org", false, true}, {"http://127.0.0.1.example.org", false, true},
		{"ftp://s3.example.org", false, false}, {"s3.example.org", false, false}, {"https://u:p@s3.example.org", false, false},
		{"https://s3.example.org/path", false, false}, {"https://s3.example.org?x=y", false, false},
	} {
		a := Address{Bucket: "models", Endpoint: c.endpoint}
		if err := a.Check(false); (err == nil) != c.fit {
			t.Errorf("%q: %v", c.endpoint, err)
		}
		if err := a.Check(true); (err == nil) != c.fitUnsafe {
			t.Errorf("%q, insecure: %v", c.endpoint, err)
		}
	}
	for _, c := range []struct {
		a              Address
		fit, fitUnsafe bool
	}{
		{Address{Web: "https://h.example/x"}, true, true}, {Address{Web: "http://127.0.0.1/x"}, true, true},
		{Address{Web: "http://h.example/x"}, false, true},
		{Address{Web: "https://h.example/x", Endpoint: "https://s3.example.org"}, false, false},
	} {
		if err := c.a.Check(false); (err == nil) != c.fit {
			t.Errorf("%+v: %v", c.a, err)
		}
		if err := c.a.Check(true); (err == nil) != c.fitUnsafe {
			t.Errorf("%+v, insecure: %v", c.a, err)
		}
	}
}

func TestMake(t *testing.T) {
	b := &bucket.Mem{}
	if _, err := Look(t.Context(), b); !errors.Is(err, ErrNone) {
		t.Fatalf("an empty bucket: %v", err)
	}
	f, made, err := Make(t.Context(), b, noon)
	if err != nil || !made || !f.Created.Equal(noon) || f.ID.IsZero() {
		t.Fatalf("%+v, %v, %v", f, made, err)
	}
	again, made, err := Make(t.Context(), b, noon.Add(time.Hour))
	if err != nil || made || again != f {
		t.Fatalf("made again: %+v, %v, %v; want %+v", again, made, err, f)
	}
	data, _, err := bucket.Read(t.Context(), b, record.FormatKey, maxText, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		p := append([]byte(nil), data...)
		p[i] ^= 1
		if _, err := ParseFormat(p); !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := ParseFormat(data[:i]); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("the first %d bytes: %v", i, err)
		}
	}
	newer := strings.Replace(string(data), "ckptfs-remote 1", "ckptfs-remote 2", 1)
	if _, err := ParseFormat([]byte(newer)); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
}

func TestJoined(t *testing.T) {
	least := Joined{Address: Address{Bucket: "models"}, ID: record.ID{1}, Writer: "a.00000000"}
	reader := Joined{Address: Address{Web: "https://h.example/team"}, ID: record.ID{1}}
	s3reader := Joined{Address: Address{Bucket: "models"}, ID: record.ID{1}}
	for _, j := range []Joined{example(), least, reader, s3reader} {
		p := j.Encode()
		got, err := ParseJoined(p)
		if err != nil || got != j {
			t.Errorf("%+v, %v; want %+v", got, err, j)
		}
		for i := range p {
			if _, err := ParseJoined(p[:i]); err == nil {
				t.Errorf("the first %d bytes are taken", i)
			}
		}
		for _, bad := range []string{"", "\n", string(p) + "\n", string(p) + "more lines\n",
			strings.Replace(string(p), "writer ", "writer ../", 1) + "x",
			string(reader.Encode()) + "writer b.00000000\n",
			strings.Replace(string(p), "id ", "id 0", 1)} {
			if _, err := ParseJoined([]byte(bad)); !errors.Is(err, cas.ErrCorrupt) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

func TestRegister(t *testing.T) {
	b := &bucket.Mem{}
	var want []record.Writer
	for range 3 {
		w, err := Register(t.Context(), b, "GPU node_17")
		if err != nil || !strings.HasPrefix(string(w), "gpu-node-17.") || w.Check() != nil {
			t.Fatalf("%q, %v", w, err)
		}
		want = append(want, w)
	}
	got, err := Writers(t.Context(), b)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%q, %v; want %q in some order", got, err, want)
	}
	for name, want := range map[string]string{"": "writer", "é": "writer", "--": "writer", "Ab_c": "ab-c",
		strings.Repeat("a", 99): strings.Repeat("a", 40)} {
		if got := WriterName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}
