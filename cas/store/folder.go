package store

import (
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// folder is where the segments of a store lie.
type folder struct {
	fs  disk.FS
	dir string
	id  [16]byte // the store's
}

func (d folder) segment(n uint32) segment.ID { return segment.ID{Store: d.id, Number: n} }

// open opens segment n for reading.
func (d folder) open(n uint32) (*segment.Reader, error) {
	return segment.Open(d.fs, d.dir, d.segment(n))
}

// numbers lists the segments in the directory, ascending.
func (d folder) numbers() ([]uint32, error) { return segment.Numbers(d.fs, d.dir) }
