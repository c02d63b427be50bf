package space

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/estimate"
)

// SoFar is an estimate in a few words.
func SoFar(a *estimate.Answer) string {
	return fmt.Sprintf("%s would take %s (%s to %s)", text.Bytes(a.Bytes), text.Bytes(a.StoredBytes),
		text.Bytes(a.LowBytes), text.Bytes(a.HighBytes))
}

// Estimate prints what files would take in a store.
func Estimate(w io.Writer, a *estimate.Answer) {
	text.Pairs(w,
		"files", fmt.Sprintf("%s, %s", humanize.Comma(int64(a.Files)), text.Bytes(a.Bytes)),
		"would take", takes(a),
		"saves", text.Bytes(max(0, a.Bytes-a.StoredBytes)),
		"read", read(a),
		"links", links(a),
		"changed", changed(a),
	)
	parts(w, "KIND", a.Kinds, false)
	parts(w, "FORMAT", a.Formats, true)
	groups(w, a.Groups)
	if a.LeftFiles == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s left out:\n", text.Plural(int64(a.LeftFiles), "file"))
	for _, l := range a.Left {
		fmt.Fprintf(w, "  %s: %s\n", text.Printable(l.Path), l.Reason)
	}
	if more := a.LeftFiles - len(a.Left); more > 0 {
		fmt.Fprintf(w, "  and %s more\n", humanize.Comma(int64(more)))
	}
}

func percent(part, of int64) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

func takes(a *estimate.Answer) string {
	s := text.Bytes(a.StoredBytes)
	if a.Bytes > 0 {
		s += ", " + percent(a.StoredBytes, a.Bytes)
	}
	if !a.Complete {
		s += fmt.Sprintf(", most likely %s to %s", text.Bytes(a.LowBytes), text.Bytes(a.HighBytes))
	}
	return s
}

func read(a *estimate.Answer) string {
	took := time.Duration(a.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	if a.Complete {
		return fmt.Sprintf("everything, in %s", took)
	}
	return fmt.Sprintf("%s, in %s; --full reads everything", text.Bytes(a.ReadBytes), took)
}

func links(a *estimate.Answer) string {
	if a.Links == 0 {
		return ""
	}
	return text.Plural(int64(a.Links), "link") + " to folders not followed"
}

func changed(a *estimate.Answer) string {
	if a.Changed == 0 {
		return ""
	}
	return text.Plural(int64(a.Changed), "file") + " changed meanwhile, and left out"
}

func parts(w io.Writer, head string, all []estimate.Part, files bool) {
	if len(all) == 0 {
		return
	}
	heads := []string{head, ">SIZE", ">TAKES", ">"}
	if files {
		heads = []string{head, ">FILES", ">SIZE", ">TAKES", ">"}
	}
	var rows [][]string
	for _, p := range all {
		row := []string{text.Printable(p.Name)}
		if files {
			row = append(row, humanize.Comma(int64(p.Files)))
		}
		rows = append(rows, append(row, text.Bytes(p.Bytes), text.Bytes(p.StoredBytes),
			percent(p.StoredBytes, p.Bytes)))
	}
	fmt.Fprintln(w)
	text.Table(w, heads, rows)
}

func groups(w io.Writer, all []estimate.Group) {
	if len(all) == 0 {
		return
	}
	var rows [][]string
	for _, g := range all {
		rows = append(rows, []string{
			fmt.Sprintf("%s and %s like it", text.Printable(g.Name), humanize.Comma(int64(g.Models-1))),
			humanize.Comma(int64(g.Files)), text.Bytes(g.Bytes), text.Bytes(g.StoredBytes),
			percent(g.StoredBytes, g.Bytes), "mostly " + g.How,
		})
	}
	fmt.Fprintln(w)
	text.Table(w, []string{"RELATIVES", ">FILES", ">SIZE", ">TAKES", ">", "THE OTHERS"}, rows)
}
