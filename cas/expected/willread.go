package expected

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// maxSkip is how many bytes between two chunks are read along rather than left out of one request to the
// disk.
const maxSkip = 64 << 10

// WillRead has the disk begin to read records, and appends what is read to memory of our own to all. once
// says that they are not likely to be read again. It changes locs.
func (a *Stretches) WillRead(
	files *segment.Files, locs []cas.Location, once bool, all []*Stretch,
) []*Stretch {
	locs = slices.DeleteFunc(locs, func(l cas.Location) bool { // others expect it
		t := a.Find(l.Segment, l.Off, segment.RecordHeaderSize+int(l.Stored))
		if t != nil {
			all = append(all, t)
		}
		return t != nil
	})
	slices.SortFunc(locs, cas.Location.Compare)
	for len(locs) > 0 {
		from, to := locs[0], segment.End(locs[0])
		n := 1
		for ; n < len(locs) && locs[n].Segment == from.Segment && locs[n].Off <= to+maxSkip &&
			Fits(from.Off, segment.End(locs[n])); n++ {
			to = max(to, segment.End(locs[n]))
		}
		locs = locs[n:]
		if from.Segment == 0 {
			continue
		}
		f, err := files.Get(from.Segment)
		if err != nil {
			continue
		}
		if t := a.Add(from.Segment, from.Off, to, once); t != nil {
			all = append(all, t)
			go func() {
				a.Read(t, f.Reader)
				files.Put(f)
			}()
			continue
		}
		f.WillRead(from.Off, to-from.Off)
		files.Put(f)
	}
	return all
}
