// Package space prints what a store takes, and what of that comes back: when, and by which command.
package space

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// Stats prints what a store holds and what that costs.
func Stats(w io.Writer, st *control.Stats) {
	ratio := ""
	if st.Ratio > 0 {
		ratio = fmt.Sprintf("%.2fx", st.Ratio)
	}
	lost := ""
	if st.Lost > 0 {
		lost = fmt.Sprintf("%s may have lost bytes; `ckptfs check` names them", text.Plural(st.Lost, "file"))
	}
	remote := ""
	if st.RemoteBytes > 0 {
		remote = text.Bytes(st.RemoteBytes) + ", which is not here"
	}
	text.Pairs(w,
		"files", fmt.Sprintf("%s, %s packed", humanize.Comma(st.Files), humanize.Comma(st.Packed)),
		"lost", lost,
		"tensors", humanize.Comma(st.Tensors),
		"chunks", humanize.Comma(st.Chunks),
		"logical", logical(st),
		"remote", remote,
		"unique", text.Bytes(st.UniqueBytes),
		"stored", stored(st),
		"deltas", deltas(st),
		"recipes", recipes(st),
		"local", local(st),
		"on disk", text.Bytes(st.StoredBytes+st.LocalBytes)+", stored and local",
		"ratio", ratio,
		"waiting", waiting(st),
	)
	runs(w, st.Runs)
}

// logical is what files are by their sizes.
func logical(st *control.Stats) string {
	s := fmt.Sprintf("%s, %s packed", text.Bytes(st.LogicalBytes), text.Bytes(st.PackedBytes))
	switch kept := st.PlainBytes - st.Waiting.Bytes; {
	case kept > 0 && (st.Waiting.Unknown || st.Waiting.Unmounted):
		s += ", " + text.Bytes(kept) + " not packed"
	case kept > 0:
		s += ", " + text.Bytes(kept) + " kept as it is"
	}
	return s
}

func stored(st *control.Stats) string {
	parts := []string{"segments " + text.Bytes(st.SegmentBytes)}
	if st.PackingBytes > 0 {
		parts[0] += ", of it being written " + text.Bytes(st.PackingBytes)
	}
	parts[0] += ", of it dead " + text.Bytes(st.DeadBytes)
	parts = append(parts, "index "+text.Bytes(st.IndexBytes))
	return fmt.Sprintf("%s (%s)", text.Bytes(st.StoredBytes), strings.Join(parts, "; "))
}

// computed are the chunks that are stored as recipes. They count among the deltas of Stats.
func computed(st *control.Stats) (e control.Encoding) {
	for i := range st.Encodings {
		if st.Encodings[i].Codec == "recipe" {
			e = st.Encodings[i]
		}
	}
	return e
}

func recipes(st *control.Stats) string {
	e := computed(st)
	if e.Records == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s, computed from others by recipes of %s", text.Plural(e.Records, "chunk"),
		text.Bytes(e.RawBytes), text.Bytes(e.Bytes))
}

func deltas(st *control.Stats) string {
	e := computed(st)
	n := st.Deltas - e.Records
	if n <= 0 {
		if st.BaseBytes > 0 {
			return fmt.Sprintf("none; recipes need %s of chunks that no file has", text.Bytes(st.BaseBytes))
		}
		return ""
	}
	s := fmt.Sprintf("%s of %s, stored as differences of %s", text.Plural(n, "chunk"),
		text.Bytes(st.DeltaRawBytes-e.RawBytes), text.Bytes(st.DeltaBytes-e.Bytes))
	if st.BaseBytes > 0 {
		s += fmt.Sprintf("; they need %s of chunks that no file has", text.Bytes(st.BaseBytes))
	}
	return s
}

// local is what lies in the tree: files that are not packed, and a cache.
func local(st *control.Stats) string {
	s := text.Bytes(st.LocalBytes)
	if st.PinnedBytes > 0 {
		s += ", pinned " + text.Bytes(st.PinnedBytes)
	}
	if copies := st.CopiesBytes - st.PinnedBytes; copies > 0 {
		s += fmt.Sprintf(", of it %s copies of packed files (a cache: `ckptfs evict`, `mount --hot-size`)",
			text.Bytes(copies))
	}
	return s
}

// waiting is what is not packed yet, and is to be.
func waiting(st *control.Stats) string {
	switch {
	case st.PlainBytes == 0:
	case st.Waiting.Unmounted:
		return "not known: the store is not mounted, and packs what is not packed once it is"
	case st.Waiting.Unknown:
		return "not known yet: the daemon looks at all names still"
	}
	if st.Waiting.Files == 0 {
		return ""
	}
	s := fmt.Sprintf("%s, %s: `ckptfs sync` packs them now", text.Plural(int64(st.Waiting.Files), "file"),
		text.Bytes(st.Waiting.Bytes))
	if st.Waiting.Why != "" {
		s += " (" + st.Waiting.Why + ")"
	}
	return s
}

func runs(w io.Writer, all []control.RunStats) {
	if len(all) == 0 {
		return
	}
	rows := make([][]string, 0, len(all))
	for _, r := range all {
		rows = append(rows, []string{text.Printable(r.Run), humanize.Comma(r.Steps), humanize.Comma(r.Files),
			text.Bytes(r.LogicalBytes), text.Bytes(r.UniqueBytes), text.Bytes(r.NewBytes)})
	}
	fmt.Fprintln(w)
	text.Table(w, []string{"RUN", ">STEPS", ">FILES", ">LOGICAL", ">UNIQUE", ">NEW"}, rows)
	fmt.Fprintln(w, "NEW is what no run above has; it and UNIQUE are before compression.")
}

// Pruned prints what a prune with a grace period did, or would do, and what stays for a while.
func Pruned(w io.Writer, p *control.Pruned, grace time.Duration) {
	if p.DryRun {
		fmt.Fprintf(w, "would remove %s, about %s\n", text.Plural(p.DeadRecords, "chunk"), text.Bytes(p.FreedBytes))
	} else {
		fmt.Fprintf(w, "removed %s, %s freed", text.Plural(p.DeadRecords, "chunk"),
			text.Bytes(max(0, p.FreedBytes-p.CopiedBytes)))
		if p.CopiedBytes > 0 {
			fmt.Fprintf(w, " (%s moved)", text.Bytes(p.CopiedBytes))
		}
		fmt.Fprintln(w)
	}
	bases(w, p)
	if p.YoungBytes > 0 {
		fmt.Fprintf(w, "%s that no file needs stays: it is younger than --grace %s, or what is younger needs it; `ckptfs prune --grace 0` takes it now\n",
			text.Bytes(p.YoungBytes), Span(grace))
	}
	if looked := p.Segments - p.Young - p.Damaged; looked > 0 {
		fmt.Fprintf(w, "%s in use, %s, in %s looked at\n", text.Plural(p.LiveRecords, "chunk"),
			text.Bytes(p.LiveBytes), text.Plural(int64(looked), "segment"))
	}
	if p.Young > 0 {
		fmt.Fprintf(w, "%s left alone: written within the grace period\n", text.Plural(int64(p.Young), "segment"))
	}
	if p.Damaged > 0 {
		fmt.Fprintf(w, "%s left alone: damaged or unfinished; `ckptfs check` says more\n",
			text.Plural(int64(p.Damaged), "segment"))
	}
	if p.NotPunched > 0 {
		fmt.Fprintf(w, "%s: this disk makes no holes; --max-unused 0 moves what is in use instead\n",
			text.Plural(int64(p.NotPunched), "segment"))
	}
}

// bases prints what stays, or goes, of which files are computed that stay.
func bases(w io.Writer, p *control.Pruned) {
	if p.ApartBytes > 0 && !p.DryRun {
		fmt.Fprintf(w, "%s written for files that had been computed of removed ones, which went\n",
			text.Bytes(p.ApartBytes))
	}
	if p.BaseFiles == 0 || p.BaseBytes == 0 {
		return
	}
	then := ""
	switch {
	case p.ApartBytes > 0 && p.DryRun:
		then = fmt.Sprintf("; of these %s would be stored alone", text.Bytes(p.ApartBytes))
	case p.BaseNoRoom:
		then = "; the disk has no room to store them alone: free some, and prune again"
	}
	fmt.Fprintf(w, "%s of removed files are kept for %s computed of them, which would take %s alone%s\n",
		text.Bytes(p.BaseBytes), text.Plural(int64(p.BaseFiles), "file"), text.Bytes(p.BaseAloneBytes), then)
}

// Span is a time span without units that are zero.
func Span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
