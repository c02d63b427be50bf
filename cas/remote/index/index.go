// Package index is the index of a remote: which of its files have an object of a digest, or a manifest. So a
// machine that is about to publish a file that another has published, or one much like it, finds that out by
// a few requests, and need not put what is there.
//
// The index is a head, that of record.IndexWriter, and the shards that it names (package record). Make brings
// it up to what the heads of all writers say; a Reader looks digests up.
//
// # What may be relied on
//
// Nothing has to be in the index, and what it says may be out of date: a file that it names may be gone. Who
// relies on an object that it leads to holds it against what epochs condemned, as any other (package writer).
// For objects that were deleted that is enough where all epochs are known which came after the index was
// made, since what a head referred to when it was read was deleted by none before it:
//
//	Made      an epoch E: E and all before it were decided before the first head was read
//	Covered   each epoch past Made is kept, and so was told to the State of who asks
//
// # Making
//
//	1  GET the index's head, which is made if there is none     its stamp s
//	2  GET gc/state, and what the newest epoch says: Made
//	3  read all heads and tables; of entries past Seen the plans and manifests
//	4  PUT shards                                               If-None-Match: *
//	5  PUT the head, with the epoch of 2 as its stamp           If-Match
//
// What is put in 4 was drawn after 2, so no epoch that 2 saw condemned it; and one that came later has
// stamped the head, so that 5 is refused: then all begins again, with other shards. Shards that the head has
// already are referred to all the time.
//
// Of files that share an object the one that was published last is in the index, since it may be expected to
// stay longest. Items of files that are no more are left out. A file whose plan or manifest cannot be read is
// passed over, and not asked for again.
package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// MinObject is the length, in bytes, from which on objects are in the index. A smaller one is put in less
// time than it takes to look for it.
const MinObject = 256 << 10

// Options say of what an index is made.
type Options struct {
	Remote record.ID
	Now    func() time.Time
	Random io.Reader // gives ids
	// Say, if not nil, is told how much of what is being done is done.
	Say func(doing string, n int64)
}

// Made is what Make found and did.
type Made struct {
	Files   int   `json:"files"`   // that the remote has
	Added   int   `json:"added"`   // of them, which were not in the index
	Unread  int   `json:"unread"`  // of these, whose plans or manifests are not there, or damaged
	Items   int64 `json:"items"`   // of the index
	Removed int64 `json:"removed"` // items, of files that are no more
	Shards  int   `json:"shards"`
	Put     int64 `json:"put"` // bytes of new shards
}

// attempts bound how often Make begins again because the head was changed.
const attempts = 4

// errAgain: the head is not as it was read.
var errAgain = errors.New("the index was changed again and again while it was made")

// errLost: a shard is not there, or damaged.
var errLost = errors.New("a shard of the index is lost")

// Make brings the index up to the heads of all writers. Requests are expected to be made again where they
// fail in a way that passes (package patient).
func Make(ctx context.Context, b bucket.Bucket, o Options) (made Made, err error) {
	discard := false
	for range attempts {
		m := &making{b: b, o: o, discard: discard}
		made, err = m.round(ctx)
		discard = discard || errors.Is(err, errLost)
		if !discard && !errors.Is(err, errAgain) || err == nil {
			break
		}
	}
	if err != nil {
		return made, fmt.Errorf("index: %w", err)
	}
	return made, nil
}

// readHead reads the index's head; bucket.ErrUnchanged if its version is unless.
func readHead(ctx context.Context, b bucket.Bucket, remote record.ID, unless bucket.Version) (
	*record.Head, bucket.Version, error) {
	p, info, err := bucket.Read(ctx, b, record.HeadKey(record.IndexWriter), record.MaxHead, unless)
	if err != nil {
		return nil, "", err
	}
	h, err := record.DecodeHead(record.IndexWriter, p)
	if err == nil {
		err = h.CheckRemote(record.IndexWriter, remote)
	}
	return h, info.Version, err
}
