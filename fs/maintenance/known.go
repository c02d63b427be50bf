package maintenance

import (
	"slices"

	"ckptfs/fs/control"
)

// Of the problems that are known after a check, at most
const (
	maxKnown     = 64        // are told by name
	maxKnownSize = 128 << 10 // bytes are their names and reasons
	maxReason    = 512       // bytes is one reason
)

// checked notes that a check has ended, which says what it was in is. If it did not read all data, what
// earlier ones saw there is still known, but for the local copies of files that have none any more. out is
// told how much of that it did not see itself, and why nobody will know of it later.
func (l *Last) checked(
	p *Passes, all bool, evicted map[string]bool, out *control.Checked, is *control.LastCheck,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Beside {
		_ = l.recallLocked(p.Folder) // what cannot be read says nothing
	}
	was := l.Check.Load()
	if all {
		was = nil
	}
	was = without(was, func(p *control.Problem) bool { return p.Repair == repairEvict && evicted[p.Path] })
	after(is, was, out)
	l.Check.Store(is)
	out.NotKept = l.keepLocked(p)
}

// copies are the files whose local copies were seen to be damaged.
func (l *Last) copies() map[string]bool {
	m := map[string]bool{}
	if was := l.Check.Load(); was != nil {
		for _, p := range was.Found {
			if p.Repair == repairEvict {
				m[p.Path] = true
			}
		}
	}
	return m
}

// without is what is known without the problems seen by reading data that are mended.
func without(was *control.LastCheck, mended func(*control.Problem) bool) *control.LastCheck {
	if was == nil || was.Data == 0 {
		return was
	}
	is := *was
	is.Found = slices.DeleteFunc(slices.Clone(was.Found), func(p control.Problem) bool {
		return p.Data && mended(&p)
	})
	gone := int64(len(was.Found) - len(is.Found))
	is.Data, is.Problems = is.Data-gone, is.Problems-gone
	if is.Data == 0 {
		is.DataAt = nil
	}
	return &is
}

// after completes what is known after a check from what was known before, nil for nothing, and what it found.
func after(is, was *control.LastCheck, out *control.Checked) {
	is.Problems, is.Data = out.Damaged, out.Data
	if out.Data > 0 {
		is.DataAt = &is.At
	}
	found := slices.Clone(out.Problems)
	if was != nil && was.Data > 0 {
		type about struct{ path, what string }
		key := func(p *control.Problem) about {
			if p.Path != "" { // a file suffers once, whatever is said of it
				return about{path: p.Path}
			}
			return about{what: reason(p.What)}
		}
		at := make(map[about]int, len(found))
		for i := range found {
			at[key(&found[i])] = i
		}
		for _, p := range was.Found {
			if !p.Data {
				continue
			}
			i, again := at[key(&p)]
			switch {
			case !again:
				found = append(found, p)
				out.Unseen++
				is.Data++
			case !found[i].Data:
				found[i].Data = true
				is.Data++
			}
		}
		// Of those that have no name here some may have been seen again.
		if more := was.Data - is.Data; more > 0 {
			out.Unseen += more
			is.Data += more
		}
		is.Problems += out.Unseen
		if is.DataAt == nil {
			is.DataAt = was.DataAt
		}
	}
	size := 0
	for i := range found {
		p := &found[i]
		p.What, p.Tensors, p.TensorCount = reason(p.What), nil, 0
		if size += len(p.Path) + len(p.What); i == maxKnown || size > maxKnownSize {
			found = found[:i]
			break
		}
	}
	if len(found) > 0 {
		is.Found = found
	}
}

// reason is what is wrong, cut short.
func reason(what string) string {
	if len(what) > maxReason {
		return what[:maxReason]
	}
	return what
}
