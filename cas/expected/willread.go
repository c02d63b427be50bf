package expected

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// maxSkip is how many bytes between two chunks are read along rather than left out of one request to the
// disk.
const maxSkip = 64 << 10

// span is a part of a segment.
type span struct {
	number   uint32
	from, to int64
}

// WillRead has the disk begin to read records, and appends what is read to memory of our own to all. once
// says that they are not likely to be read again. If all is empty, it waits for memory: who holds some of it
// must not. It changes locs.
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
	var spans []span
	var need int64
	for len(locs) > 0 {
		from, to := locs[0], segment.End(locs[0])
		n := 1
		for ; n < len(locs) && locs[n].Segment == from.Segment && locs[n].Off <= to+maxSkip &&
			Fits(from.Off, segment.End(locs[n])); n++ {
			to = max(to, segment.End(locs[n]))
		}
		locs = locs[n:]
		if from.Segment != 0 {
			spans = append(spans, span{from.Segment, from.Off, to})
			if size := sizeOf(from.Off, to); size <= a.max {
				need += size
			}
		}
	}
	reserved := a.reserve(need, len(all) == 0)
	defer func() { a.room.Release(reserved) }()
	for _, p := range spans {
		f, err := files.Get(p.number)
		if err != nil {
			continue
		}
		if t := a.Add(p.number, p.from, p.to, once, &reserved); t != nil {
			all = append(all, t)
			go func() {
				a.Read(t, f.Reader)
				files.Put(f)
			}()
			continue
		}
		f.WillRead(p.from, p.to-p.from)
		files.Put(f)
	}
	return all
}
