package ui

import (
	"fmt"
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
			row = append(row, strings.TrimSpace(tag.ReplaceAllString(c[1], "")))
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
