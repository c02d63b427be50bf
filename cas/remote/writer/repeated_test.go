package writer

import (
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// What the last commit of the process before did is not done twice, whatever else is asked for first; and
// what differs from it in anything is done.
func TestRepeated(t *testing.T) {
	model := func() record.Entry {
		e := fileOf("runs/a/m", cas.Hash{1})
		e.File.Model = &record.Model{Parent: record.Parent{Path: "runs/a/0"}, How: "step",
			Merged: []record.Parent{{Path: "runs/b"}}, Source: "x", Graph: []record.Part{{Hash: cas.Hash{3}}}}
		return e
	}
	for name, change := range map[string]func(e *record.Entry){
		"": func(e *record.Entry) {}, "mode": func(e *record.Entry) { e.Mode = 0o600 },
		"time":   func(e *record.Entry) { e.MTime++ },
		"over":   func(e *record.Entry) { *e = over(*e, you, 3) },
		"size":   func(e *record.Entry) { e.File.Size++ },
		"file":   func(e *record.Entry) { e.File.Manifest[0]++ },
		"inline": func(e *record.Entry) { e.File = &record.File{Size: 1, Inline: "x"} },
		"kind":   func(e *record.Entry) { *e = record.Entry{Path: e.Path, Kind: record.KindLink, Link: "x"} },
		"metric": func(e *record.Entry) { e.Metrics = []record.Metric{{Name: "loss", Value: 1}} },
		"model":  func(e *record.Entry) { e.File.Model = nil },
		"parent": func(e *record.Entry) { e.File.Model.Parent.Path += "x" },
		"how":    func(e *record.Entry) { e.File.Model.How += "x" },
		"merged": func(e *record.Entry) { e.File.Model.Merged[0].Path += "x" },
		"source": func(e *record.Entry) { e.File.Model.Source += "x" },
		"graph":  func(e *record.Entry) { e.File.Model.Graph[0].Hash[0]++ },
	} {
		a, b := model(), model()
		change(&b)
		if same(&b, &a) != (name == "") {
			t.Errorf("%s: the same, %v", name, name != "")
		}
	}
	folder := func(attr string) *record.Entry {
		return &record.Entry{Kind: record.KindFolder, Attrs: []record.Attr{{Name: "user.x", Value: attr}}}
	}
	if !same(folder("1"), folder("1")) || same(folder("1"), folder("2")) {
		t.Error("attributes are not compared")
	}
}

// The same with a tail and with tables, by one process and by the next.
func TestLast(t *testing.T) {
	for _, table := range []bool{false, true} {
		mem := &bucket.Mem{}
		f := &faulty{Bucket: mem}
		r := newRig(t, f, 1)
		r.mustPush(inline("runs/a/x", "0"))
		last := []record.Entry{inline("runs/a/x", "1"), inline("runs/a/y", "1")}
		if table {
			r.mustPush(full("t")...)
			last = append(last, full("u")...)
		}
		sequence := r.mustPush(last...).Sequence
		// The process dies before anybody hears of it.
		r.restart()
		r.mustPush(inline("runs/a/z", ""))
		if res := r.mustPush(append(last, inline("runs/a/w", ""))...); res.Sequence != sequence+2 {
			t.Errorf("%v: %+v", table, res)
		}
		h, have := names(t, mem, r.w.id.Writer)
		if v := have["runs/a/y"].Version; v != sequence || h.Sequence != sequence+2 {
			t.Errorf("%v: version %d, sequence %d", table, v, h.Sequence)
		}
		// What is asked for once more is.
		if res := r.mustPush(last...); res.Sequence != sequence+3 {
			t.Errorf("%v: %+v", table, res)
		}
		// A change in between, and back.
		r.restart()
		r.mustPush(inline("runs/a/x", "2"))
		if res := r.mustPush(inline("runs/a/x", "1")); res.Sequence != sequence+5 {
			t.Errorf("%v: %+v", table, res)
		}
		// The answer is lost, and so are all others; then something else is asked for.
		cut := false
		f.fault = func(op, key string, n int) fault {
			if strings.HasPrefix(key, record.Heads) && op == "put" {
				cut = true
				return lost
			}
			if cut {
				return dead
			}
			return done
		}
		if _, err := r.push(inline("runs/a/v", "")); err == nil {
			t.Error("no error")
		}
		f.fault = nil
		r.mustPush(inline("runs/a/q", ""))
		if res := r.mustPush(inline("runs/a/v", "")); !res.Commit.IsZero() {
			t.Errorf("%v: %+v", table, res)
		}
	}
}
