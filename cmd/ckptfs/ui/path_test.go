package ui

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// local has a request come from this machine.
func local(r *http.Request) { r.Host = "localhost" }

var (
	tableRow = regexp.MustCompile(`(?s)<tr>.*?</tr>`)
	cell     = regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`)
	tag      = regexp.MustCompile(`<[^>]*>`)
)

// cells are the texts of the rows of all tables in a page.
func cells(page string) (rows [][]string) {
	for _, tr := range tableRow.FindAllString(page, -1) {
		var row []string
		for _, c := range cell.FindAllStringSubmatch(tr, -1) {
			row = append(row, html.UnescapeString(strings.TrimSpace(tag.ReplaceAllString(c[1], ""))))
		}
		rows = append(rows, row)
	}
	return rows
}

// Names of a folder come in the order of the numbers in them, also where there are more than a page has, and
// folders have the size of what is in them.
func TestFolder(t *testing.T) {
	files := map[string][]byte{}
	for _, step := range []int{1000, 200, 30} {
		files[fmt.Sprintf("runs/c/step-%d/m.json", step)] = make([]byte, step)
	}
	for i := range mostEntries + 5 {
		files[fmt.Sprintf("many/%d.json", i)] = nil
	}
	files["many/folder/a"] = nil
	s := serveStore(t, false, files)
	names := func(rows [][]string) (all []string) {
		for _, r := range rows[1:] {
			all = append(all, r[0])
		}
		return all
	}
	_, b := ask(t, s.gate, "GET", "/path?path=runs/c", local)
	rows := cells(b)
	if got := names(rows); !slices.Equal(got, []string{"step-30", "step-200", "step-1000"}) {
		t.Fatalf("in the order %q", got)
	}
	for i, want := range []string{"30 B", "200 B", "1000 B"} {
		if got := rows[i+1][3]; got != want {
			t.Errorf("%s has the size %q, not %q", rows[i+1][0], got, want)
		}
	}
	_, b = ask(t, s.gate, "GET", "/path?path=many", local)
	got := names(cells(b))
	if len(got) != mostEntries || got[0] != "folder" || got[1] != "0.json" ||
		got[mostEntries-1] != fmt.Sprintf("%d.json", mostEntries-2) || !strings.Contains(b, "and 6 more") {
		t.Errorf("%d names, from %s to %s", len(got), got[0], got[len(got)-1])
	}
}

// A path that leads out of the store, or that none can have, is refused with the reason, whichever page has
// it.
func TestPathsRefused(t *testing.T) {
	s := serveStore(t, false)
	long := strings.Repeat("x", 60_000)
	for to, want := range map[string]string{
		"/path?path=" + long[:300]:       "at most 255 bytes",
		"/path?path=" + long:             "at most 4,095 bytes",
		"/path?path=a%00b":               "zero byte",
		"/path?path=../x":                "leads out",
		"/space?path=../..":              "leads out",
		"/part/space?path=runs/../../x":  "leads out",
		"/lineage?path=..":               "leads out",
		"/part/ancestry?path=../x":       "leads out",
		"/part/removal?path=../x&json=1": "leads out",
		"/part/tensors?path=../x":        "leads out",
		"/diff?a=../..&b=runs/a/1":       "leads out",
		"/diff?a=runs/a/1&b=/../x":       "leads out",
		"/part/diff?a=runs/a/1&b=../..":  "leads out",
		"/tensor?file=../x&name=y":       "leads out",
		"/part/values?file=../x&name=y":  "leads out",
		"/run?run=../..":                 "leads out",
		"/part/moves?run=../../x&json=1": "leads out",
		"/compare?run=a&run=../../..":    "leads out",
		"/path?path=runs//a":             "runs/a",
		"/space?path=runs/./a":           "runs/a",
	} {
		r, b := ask(t, s.gate, "GET", to, local)
		if r.StatusCode != http.StatusBadRequest || !strings.Contains(b, want) || len(b) > 10_000 ||
			strings.Contains(b, "ckptfs du") || strings.Contains(b, "ckptfs diff") {
			t.Errorf("%.80s: %d, not %q: %.3000s", to, r.StatusCode, want, b)
		}
	}
	r, b := ask(t, s.gate, "GET", "/path?path=runs/a/1/model.safetensors/x", local)
	if r.StatusCode != http.StatusNotFound {
		t.Errorf("below a file: %d %s", r.StatusCode, b)
	}
	for _, to := range []string{"/path?path=/runs/a/", "/space?path=runs/a/", "/diff?a=runs/a/1/&b=runs/a/2"} {
		if r, b := ask(t, s.gate, "GET", to, local); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", to, r.StatusCode, b)
		}
	}
}

// Of runs that are compared those that are not there are named, and the others shown.
func TestCompareUnknown(t *testing.T) {
	s := serveStore(t, false)
	r, b := ask(t, s.gate, "GET", "/compare?run=a&run=nope&run=gone", local)
	if r.StatusCode != http.StatusOK || !strings.Contains(b, "There are no runs called gone, nope") ||
		!strings.Contains(b, "val_loss over the steps") || strings.Contains(b, `value="nope"`) {
		t.Errorf("%d %s", r.StatusCode, b)
	}
	r, b = ask(t, s.gate, "GET", "/compare?run=nope", local)
	if r.StatusCode != http.StatusNotFound || !strings.Contains(b, "nope") {
		t.Errorf("%d %s", r.StatusCode, b)
	}
}

// A figure has one name on all pages, that of the commands, and all pages say the same of what a removal
// gives back.
func TestOneWord(t *testing.T) {
	s := serveStore(t, false)
	_, b := ask(t, s.gate, "GET", "/", local)
	for _, want := range []string{"<dt>Logical</dt>", "<dt>Unique</dt>", "<dt>Stored</dt>", "<dt>Local</dt>",
		">Saving<"} {
		if !strings.Contains(b, want) {
			t.Errorf("the first page lacks %s", want)
		}
	}
	if strings.Contains(strings.ToLower(b), ">saved<") || strings.Contains(b, `"saved"`) {
		t.Errorf("what was written and what was spared have one name: %s", b)
	}
	_, b = ask(t, s.gate, "GET", "/part/space?path=runs", local)
	var removal string
	for range 100 { // it is counted bit by bit
		if _, removal = ask(t, s.gate, "GET", "/part/removal?path=runs/a", local); strings.Contains(removal, "Removing") {
			_, b = ask(t, s.gate, "GET", "/part/space?path=runs", local)
			if !strings.Contains(b, "…") {
				break
			}
		}
	}
	rows := cells(b)
	i := slices.IndexFunc(rows, func(r []string) bool { return r[0] == "a" })
	if i < 0 {
		t.Fatalf("%q", rows)
	}
	said := tag.ReplaceAllString(removal, "")
	for _, want := range []string{rows[i][6] + " at once", rows[i][4] + " with the next prune"} {
		if !strings.Contains(said, want) {
			t.Errorf("removing does not give %q back: %s", want, said)
		}
	}
	for _, want := range []string{"local bytes at once", "alone with the next prune"} {
		if !strings.Contains(b, want) {
			t.Errorf("the table of space does not say %q: %s", want, b)
		}
	}
}
