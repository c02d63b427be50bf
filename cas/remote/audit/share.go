package audit

import (
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// Share is how much of the data objects that files need they need. An object stays as a whole as long as a
// file needs one record of it.
type Share struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Needed  int64 `json:"needed_bytes"`
	// Tenths are the objects of which less than a tenth is needed, then those of which less than two are …
	Tenths [10]Count `json:"by_tenths"`
}

// Count is a number of objects and their bytes.
type Count struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// used is what is needed of one object.
type used struct {
	size, needed int64
	records      []byte // a bit for each
}

// use notes that record i of n of an object is needed.
func (a *audit) use(o record.Object, i, n int, at record.Place) {
	if a.used == nil || o.Class != record.ClassData {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.used[o.ID]
	if u == nil {
		u = &used{size: o.Len, records: make([]byte, (n+7)/8)}
		a.used[o.ID] = u
	}
	if u.records[i/8]&(1<<(i%8)) == 0 {
		u.records[i/8] |= 1 << (i % 8)
		u.needed += segment.Size(int(at.Stored))
	}
}

func (a *audit) share() *Share {
	s := &Share{}
	for _, u := range a.used {
		s.Objects++
		s.Bytes += u.size
		s.Needed += u.needed
		t := &s.Tenths[min(9, 10*u.needed/max(1, u.size))]
		t.Objects++
		t.Bytes += u.size
	}
	return s
}
