package record

import (
	"fmt"
	"io"

	"ckptfs/cas"
)

const (
	// MaxHead bounds the bytes of a head.
	MaxHead = 1 << 20
	// MaxTail is how many bytes of a head the tail may take before it becomes a table.
	MaxTail = 128 << 10

	headMagic    = "ckpthead"
	headVersion  = 2
	headFixed    = 96       // bytes before the runs
	headRuns     = 16 << 10 // where the runs end at the latest
	maxTailPaths = 16 << 20 // bytes of all paths of the tail

	flagFolded = 1
)

// Head is a writer's one object that changes. The zero value is one that is registered and has no commit.
type Head struct {
	Remote   ID
	Instance ID // of the local store that writes it
	Commit   ID // random, new with each commit
	Sequence int64
	Stamp    uint32 // epoch
	Folded   bool
	Clock    int64   // Lamport; no version is greater
	Time     int64   // ns since 1970, for people
	Tables   []Table // newest first
	Tail     []Entry // ascending (Entry.Compare), which win over Tables
	Index    Index   // of IndexWriter, whose head has neither Tables nor Tail
}

// CheckRemote returns an error unless h, the head of own, is of a remote, or of none yet.
func (h *Head) CheckRemote(own Writer, remote ID) error {
	if !h.Remote.IsZero() && h.Remote != remote {
		return fmt.Errorf("%s is of remote %s: %w", HeadKey(own), h.Remote, cas.ErrCorrupt)
	}
	return nil
}

// DrawCommit gives h a commit of its own, and an instance if it has none.
func (h *Head) DrawCommit(random io.Reader) (err error) {
	if h.Commit, err = DrawID(random); err == nil && h.Instance.IsZero() {
		h.Instance, err = DrawID(random)
	}
	return err
}

// Find is what the tail has of a path: an entry for each origin.
func (h *Head) Find(path string) []Entry { return find(h.Tail, path) }

// Encode returns the one encoding of own's head. The error wraps cas.ErrTooLarge when the tail has to become
// a table, or tables have to become one.
func (h *Head) Encode(own Writer) ([]byte, error) {
	dict, err := newDictionary(own, h.Tail)
	if err == nil {
		err = h.check(dict)
	}
	if err != nil {
		return nil, fmt.Errorf("head of %s: %w", own, err)
	}
	if h.Sequence == 0 && h.Stamp == 0 {
		return nil, nil
	}
	p, runs := h.append(dict)
	if runs > headRuns || len(p) > MaxHead {
		return nil, fmt.Errorf("head of %s: %d bytes, runs up to %d: %w", own, len(p), runs, cas.ErrTooLarge)
	}
	return p, nil
}

// append makes the bytes of a head, and says where the runs end.
func (h *Head) append(dict *dictionary) (p []byte, runs int) {
	p = h.appendFixed(make([]byte, 0, 4096))
	if dict.own == IndexWriter {
		p = h.Index.append(p)
		return le.AppendUint32(p, crc(p)), 0
	}
	p = appendRuns(p, runsOf(h.Tail))
	runs = len(p)
	p = num(p, int64(len(h.Tables)))
	for i := range h.Tables {
		p = h.Tables[i].append(p)
	}
	p = dict.appendEntries(dict.append(p), h.Tail)
	return le.AppendUint32(p, crc(p)), runs
}

func (h *Head) appendFixed(p []byte) []byte {
	p = le.AppendUint16(append(p, headMagic...), headVersion)
	p = append(p, 0, 0, 0, 0, 0, 0)
	for _, id := range []ID{h.Remote, h.Instance, h.Commit} {
		p = append(p, id[:]...)
	}
	flags := uint32(0)
	if h.Folded {
		flags |= flagFolded
	}
	p = le.AppendUint64(p, uint64(h.Sequence))
	p = le.AppendUint32(le.AppendUint32(p, h.Stamp), flags)
	return le.AppendUint64(le.AppendUint64(p, uint64(h.Clock)), uint64(h.Time))
}

// runsOf are the runs of entries, ascending.
func runsOf(entries []Entry) []string {
	var runs []string
	for i := range entries {
		if run := RunOf(entries[i].Path); len(runs) == 0 || runs[len(runs)-1] != run {
			runs = append(runs, run)
		}
	}
	return runs
}

func appendRuns(p []byte, runs []string) []byte {
	p = num(p, int64(len(runs)))
	for _, run := range runs {
		p = str(p, run)
	}
	return p
}

// DecodeHead reads what Encode wrote for own and nothing else. It takes up to 100 bytes of memory for each of
// p, and 16 MiB at most for paths.
func DecodeHead(own Writer, p []byte) (*Head, error) {
	h := &Head{}
	if len(p) == 0 {
		return h, nil
	}
	of := "head of " + string(own)
	if len(p) < headFixed+4 || len(p) > MaxHead || string(p[:8]) != headMagic ||
		le.Uint32(p[len(p)-4:]) != crc(p[:len(p)-4]) {
		return nil, fmt.Errorf("%s of %d bytes: %w", of, len(p), cas.ErrCorrupt)
	}
	if err := checkVersion(of, p[8:], headVersion); err != nil {
		return nil, err
	}
	r := newReader(p[headFixed:len(p)-4], of)
	h.setFixed(p)
	if own == IndexWriter {
		h.Index = readIndex(r)
	} else {
		h.readNames(r, own)
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	again, err := h.Encode(own)
	if err != nil {
		return nil, corrupt(err)
	}
	if err := checkSame(of, p, again); err != nil {
		return nil, err
	}
	return h, nil
}

// readNames reads what follows the fixed places, but in the head of IndexWriter.
func (h *Head) readNames(r *reader, own Writer) {
	many(r, 1, r.String) // the runs, which the tail says
	h.Tables = many(r, 16+1+1+32+1+1+1, func() Table { return readTable(r) })
	dict := readDictionary(r, own)
	h.Tail = dict.readEntries(r, maxTailPaths)
}

// setFixed reads the bytes of fixed places. What is wrong with them shows when they are written again.
func (h *Head) setFixed(p []byte) {
	for i, id := range []*ID{&h.Remote, &h.Instance, &h.Commit} {
		copy(id[:], p[16+16*i:])
	}
	h.Sequence, h.Stamp = int64(le.Uint64(p[64:])), le.Uint32(p[72:])
	h.Folded = le.Uint32(p[76:])&flagFolded != 0
	h.Clock, h.Time = int64(le.Uint64(p[80:])), int64(le.Uint64(p[88:]))
}

func (h *Head) check(dict *dictionary) error {
	if err := h.Index.check(); err != nil {
		return err
	}
	if is := dict.own == IndexWriter; !is && !h.Index.isZero() || is && len(h.Tables)+len(h.Tail) > 0 {
		return fmt.Errorf("%d shards beside %d tables and %d entries", len(h.Index.Shards), len(h.Tables),
			len(h.Tail))
	}
	if h.Sequence == 0 {
		return h.checkUncommitted()
	}
	if h.Sequence < 0 || h.Clock < 0 || h.Remote.IsZero() || h.Instance.IsZero() || h.Commit.IsZero() {
		return fmt.Errorf("commit %s, number %d, clock %d", h.Commit, h.Sequence, h.Clock)
	}
	if h.Folded && len(h.Tables)+len(h.Tail) > 0 {
		return fmt.Errorf("folded with %d tables and %d entries", len(h.Tables), len(h.Tail))
	}
	seen := make(map[ID]bool, len(h.Tables))
	for i := range h.Tables {
		t := &h.Tables[i]
		if err := t.check(); err != nil {
			return err
		}
		if seen[t.ID] {
			return fmt.Errorf("table %s twice", t.ID)
		}
		seen[t.ID] = true
	}
	if err := dict.checkEntries(h.Tail, maxTailPaths); err != nil {
		return err
	}
	for i := range h.Tail {
		if v := h.Tail[i].Newest(); v > h.Clock {
			return fmt.Errorf("%.200q: version %d past the clock, %d", h.Tail[i].Path, v, h.Clock)
		}
	}
	return nil
}

// checkUncommitted holds that a head of no commit says nothing but what a collector writes.
func (h *Head) checkUncommitted() error {
	if !h.Instance.IsZero() || !h.Commit.IsZero() || h.Clock != 0 || h.Time != 0 ||
		len(h.Tables)+len(h.Tail) > 0 || !h.Index.isZero() ||
		h.Remote.IsZero() != (h.Stamp == 0) || h.Folded && h.Stamp == 0 {
		return fmt.Errorf("no commit, and stamp %d", h.Stamp)
	}
	return nil
}
