package bases

import (
	"io"
	"os"
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/index/runs"
)

const (
	keptFolders = 64
	keptNames   = 250_000 // in all of them together, unless one alone has more
	namesAtOnce = 4096    // that are read of a folder
)

// folders keep the names with numbers in the folders that were asked for last, in order: packing asks for the
// few before one, for each file, and a run may have any number of steps. Whatever makes or removes names says
// so. A name that is not there any more, or lacks, costs what a wrong guess costs.
//
// folders.mu is a leaf.
type folders struct {
	mu    locks.Mutex[foldersLock]
	kept  *simplelru.LRU[uint64, *folder] // by inode number
	names int
}

// folder is the names in a folder that is kept.
type folder struct {
	read   chan struct{} // closed when the folder was read
	since  []change      // what changed meanwhile
	series map[string][]string
	n      int // names in series
}

// change is a name that came or went.
type change struct {
	name string
	came bool
}

func newFolders() *folders {
	f := &folders{}
	// The size is positive.
	f.kept, _ = simplelru.NewLRU(keptFolders, func(_ uint64, x *folder) { f.names -= x.n })
	return f
}

// before lists the names in the folder d that differ from own in a lower number, at most n, the closest
// first.
func (f *folders) before(d *os.File, own string, n int) []string {
	pattern, number := runs.Numbers(own)
	if len(number) == 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return nil
	}
	x := f.folder(d, st.Ino)
	f.mu.Lock()
	defer f.mu.Unlock()
	all := x.series[pattern]
	at, _ := slices.BinarySearchFunc(all, number, compareName)
	all = slices.Clone(all[max(at-n, 0):at])
	slices.Reverse(all)
	return all
}

// folder returns the folder d, whose inode number is ino, as it is kept; it is read if it is not.
func (f *folders) folder(d *os.File, ino uint64) *folder {
	f.mu.Lock()
	x, ok := f.kept.Get(ino)
	if !ok {
		x = &folder{read: make(chan struct{}), series: map[string][]string{}}
		f.kept.Add(ino, x)
	}
	f.mu.Unlock()
	if ok {
		<-x.read
		return x
	}
	series, err := readSeries(d)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer close(x.read)
	now, _ := f.kept.Peek(ino)
	if err != nil || now != x { // removed meanwhile, or too many others came
		x.series = series
		if now == x {
			f.kept.Remove(ino)
		}
		return x
	}
	x.series = series
	for _, names := range series {
		x.n += len(names)
	}
	f.names += x.n
	for _, c := range x.since {
		f.applyLocked(x, c)
	}
	x.since = nil
	for f.names > keptNames && f.kept.Len() > 1 {
		f.kept.RemoveOldest()
	}
	return x
}

// readSeries reads the names in d that have numbers, by what they have in common, in order.
func readSeries(d *os.File) (map[string][]string, error) {
	series := map[string][]string{}
	for {
		names, err := d.Readdirnames(namesAtOnce)
		for _, name := range names {
			if pattern, number := runs.Numbers(name); len(number) > 0 {
				series[pattern] = append(series[pattern], name)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	for _, names := range series {
		slices.SortFunc(names, func(a, b string) int {
			_, number := runs.Numbers(b)
			return compareName(a, number)
		})
	}
	return series, nil
}

// compareName compares the numbers in a name with others.
func compareName(name string, number []string) int {
	_, own := runs.Numbers(name)
	return runs.CompareNumbers(own, number)
}

// note says that a name in the folder with an inode number came, or went.
func (f *folders) note(ino uint64, c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, ok := f.kept.Peek(ino)
	if !ok {
		return
	}
	select {
	case <-x.read:
		f.applyLocked(x, c)
	default:
		x.since = append(x.since, c)
	}
}

// applyLocked changes a folder that is kept.
func (f *folders) applyLocked(x *folder, c change) {
	f.mu.AssertHeld()
	pattern, number := runs.Numbers(c.name)
	if len(number) == 0 {
		return
	}
	names := x.series[pattern]
	at, _ := slices.BinarySearchFunc(names, number, compareName)
	there := false
	for ; at < len(names) && compareName(names[at], number) == 0; at++ { // 1 and 01 are the same number
		if there = names[at] == c.name; there {
			break
		}
	}
	switch {
	case c.came && !there:
		x.series[pattern] = slices.Insert(names, at, c.name)
		x.n++
		f.names++
	case !c.came && there:
		x.series[pattern] = slices.Delete(names, at, at+1)
		x.n--
		f.names--
	}
}

// gone says that no folder has an inode number any more.
func (f *folders) gone(ino uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept.Remove(ino)
}
