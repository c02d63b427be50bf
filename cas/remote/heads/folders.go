package heads

import (
	"context"
	"fmt"

	"ckptfs/cas/remote/record"
)

// inside stands for whatever a run holds.
const inside = "..."

// Folders reads what all heads say of the folders of runs themselves, by writer. Of a run that a head may
// have names in there is more: an entry of a folder in it, and none of the run's own, which nobody may have
// published, or which somebody removed. What runs hold is read no further.
func (h *Heads) Folders(ctx context.Context) ([]Of, error) {
	return h.each(ctx, h.folders)
}

// folders is Folders of one head.
func (h *Heads) folders(ctx context.Context, w record.Writer, of *record.Head) (Of, error) {
	o := merging{Of: Of{Writer: w}, wanted: func(p string) bool { return p == record.RunOf(p) }}
	alive := map[string]bool{}
	note := func(entries []record.Entry) {
		o.add(entries)
		for i := range entries {
			run := record.RunOf(entries[i].Path)
			alive[run] = alive[run] || entries[i].Kind != record.KindTombstone
		}
	}
	note(of.Tail)
	for _, t := range of.Tables { // newest first
		entries, err := h.foldersIn(ctx, w, t, alive)
		if err != nil {
			return o.Of, fmt.Errorf("head of %s: %w", w, err)
		}
		o.add(entries)
	}
	for run, is := range alive {
		if is {
			o.Entries = append(o.Entries,
				record.Entry{Path: run + "/" + inside, Kind: record.KindFolder, Origin: w, Mode: 0o755})
		}
	}
	return o.end(), nil
}

// foldersIn reads the blocks of a table that the folders of runs are in, and notes which of them hold names.
func (h *Heads) foldersIn(ctx context.Context, w record.Writer, t record.Table, alive map[string]bool) (
	all []record.Entry, err error) {
	d, err := h.directory(ctx, w, t)
	if err != nil {
		return nil, err
	}
	for _, r := range d.Runs {
		alive[r.Name] = alive[r.Name] || r.Newest != 0
		if r.Block >= len(d.Blocks) {
			continue
		}
		entries, err := h.inBlocks(ctx, d, r.Block, r.Block+1) // the folder is the first of its run
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	return all, nil
}
