package control

import "time"

// Progress is one line of a long operation's stream: how much is done of how much, and with what.
// A total of 0 means that it is not known yet. What is done is counted from 0 in each phase.
type Progress struct {
	Phase      string `json:"phase,omitempty"` // what is done now, in words; "": what was asked for
	DoneBytes  int64  `json:"done_bytes"`
	TotalBytes int64  `json:"total_bytes"`
	DoneFiles  int    `json:"done_files"`
	TotalFiles int    `json:"total_files"`
	Current    string `json:"current,omitempty"` // path relative to the mount's root
}

// Moved is what Evict or Hydrate did: the files whose state changed, the raw bytes that went or came,
// and those that stayed as they were although they were asked for.
type Moved struct {
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Skipped []Skip `json:"skipped"`
}

// Add adds what else was moved.
func (m *Moved) Add(more *Moved) {
	m.Files += more.Files
	m.Bytes += more.Bytes
	m.Skipped = append(m.Skipped, more.Skipped...)
}

// Skip is a file that was left alone, and why: "open", "not packed", "mapped for writing", ….
type Skip struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Stats is what the store holds and what it costs. It is counted once, and kept up to date.
//
//	LogicalBytes   sum of the sizes of all files, hard links counted once
//	UniqueBytes    raw bytes of the distinct chunks
//	StoredBytes    SegmentBytes + IndexBytes: live and dead chunks, manifests and index, as allocated on
//	               the disk
//	LocalBytes     what files take in the tree: plain files, and the local copies of packed ones; never part
//	               of StoredBytes. Its name in JSON is older, and means more than that of Status.
//	CopiesBytes    the part of LocalBytes that is local copies of packed files, a cache
//	RemoteBytes    the sizes of the files whose bytes the remote alone has
//	PlainBytes     the sizes of the other files that are not packed (yet, or ever)
//	Ratio          PackedBytes / StoredBytes, 0 when nothing is stored
type Stats struct {
	Files     int64 `json:"files"`
	Packed    int64 `json:"packed_files"`
	Damaged   int64 `json:"damaged_files"` // packed files whose manifest or lists could not be read when counted
	Lost      int64 `json:"lost_files"`    // of which the disk did not take all that was written
	Tensors   int64 `json:"tensors"`
	Chunks    int64 `json:"chunks"`
	Manifests int64 `json:"manifests"`

	LogicalBytes int64 `json:"logical_bytes"`
	PackedBytes  int64 `json:"packed_bytes"` // the part of LogicalBytes that is packed
	UniqueBytes  int64 `json:"unique_bytes"`
	StoredBytes  int64 `json:"stored_bytes"`
	SegmentBytes int64 `json:"segment_bytes"`
	IndexBytes   int64 `json:"index_bytes"`
	DeadBytes    int64 `json:"dead_bytes"`    // the part of SegmentBytes that no file needs
	PackingBytes int64 `json:"packing_bytes"` // the part of SegmentBytes that is of files that are being packed
	LocalBytes   int64 `json:"resident_bytes"`
	CopiesBytes  int64 `json:"copies_bytes"`
	PlainBytes   int64 `json:"plain_bytes"`
	RemoteBytes  int64 `json:"remote_bytes,omitempty"`
	PinnedBytes  int64 `json:"pinned_bytes,omitempty"` // the part of LocalBytes that rules of the store hold

	Waiting Waiting `json:"waiting"` // files that wait to be packed, or are being packed

	Encoded

	Ratio float64    `json:"ratio"`
	Runs  []RunStats `json:"runs"`
}

// Encoded is how what files need is stored.
type Encoded struct {
	// Chunks that are stored as their difference from another: how many, their bytes raw and stored; and the
	// bytes of what is kept for their sake alone, since no file refers to it.
	Deltas        int64 `json:"deltas"`
	DeltaRawBytes int64 `json:"delta_raw_bytes"`
	DeltaBytes    int64 `json:"delta_bytes"`
	BaseBytes     int64 `json:"base_bytes"`

	// Encodings are the chunks, lists and manifests that files need, by codec; those that nothing uses are
	// not there.
	Encodings []Encoding `json:"encodings"`
}

// Encoding is what one codec stores.
type Encoding struct {
	// "raw", "zstd", "planes", "patch", "delta", "rounded", "low rank", "recipe"
	Codec    string `json:"codec"`
	Records  int64  `json:"records"`
	RawBytes int64  `json:"raw_bytes"`
	Bytes    int64  `json:"bytes"` // as stored, with their headers
}

// RunStats is one directory below runs/: its steps are the directories in it that hold files. A file with
// names in several runs is counted in each. Runs are listed by name, as people count.
type RunStats struct {
	Run          string `json:"run"`
	Steps        int64  `json:"steps"`
	Files        int64  `json:"files"`
	LogicalBytes int64  `json:"logical_bytes"`
	UniqueBytes  int64  `json:"unique_bytes"` // raw bytes of the distinct chunks that the run's files use
	// the part of UniqueBytes that no run listed before this one uses
	NewBytes int64 `json:"new_bytes"`
}

// The values of Status.Mode.
const (
	ModePassthrough = "passthrough" // reads and writes of resident files go straight to the backing file
	ModeServed      = "served"      // every read and write goes through the daemon
	ModeUnmounted   = "unmounted"   // no daemon: the store was opened for this one command
)

// Status is what the daemon is doing now.
type Status struct {
	Version    string    `json:"version"`
	Store      string    `json:"store"`
	Mountpoint string    `json:"mountpoint,omitempty"`
	Mode       string    `json:"mode"`
	ModeReason string    `json:"mode_reason,omitempty"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Metrics    string    `json:"metrics,omitempty"` // address that answers Prometheus

	Queue         Queue    `json:"queue"`
	Packing       []string `json:"packing"`                 // paths being packed at this moment
	PackingWaits  string   `json:"packing_waits,omitempty"` // why packing waits, or is slow
	UnpackedBytes int64    `json:"unpacked_bytes"`
	Unidentified  Unknown  `json:"unidentified"` // packed files whose artifact ids will be computed
	// bytes that may wait to be packed before closes wait; negative: no bound
	MaxUnpacked   int64 `json:"max_unpacked"`
	WaitingCloses int   `json:"waiting_closes"` // closes that wait for packing now
	ResidentBytes int64 `json:"resident_bytes"`
	HotSize       int64 `json:"hot_size"` // the bound on ResidentBytes
	OpenFiles     int   `json:"open_files"`

	Remote *RemoteStatus `json:"remote,omitempty"` // nil: the store is joined to none

	Failures []Failure `json:"failures"`
	// files that stay plain though they are to be packed; at most 256
	Plain    []Failure `json:"plain"`
	Loss     *Loss     `json:"loss,omitempty"`     // what the disk did not take; nil: nothing is known
	Recovery string    `json:"recovery,omitempty"` // what the start had to repair, empty after a clean end
	Refused
	Upkeep
}

// Refused is what is wrong with what steps say of their models, as last looked at.
type Refused struct {
	Sidecars []string `json:"sidecars,omitempty"`
	// MoreSidecars is how many such problems there are besides.
	MoreSidecars int `json:"more_sidecars,omitempty"`
}

// Upkeep is what an operator watches of a store. Passes are remembered after a restart, but for checks of a
// store that was not mounted.
type Upkeep struct {
	Ruled
	Kernels string `json:"kernels,omitempty"` // the level of simd's that the daemon runs
	// every read compares BLAKE3, which takes longer, until a check of all data finds no damage
	ComparesBLAKE3 bool `json:"compares_blake3,omitempty"`
	// how many files the start has looked at so far; nil once it has come to all: before that it is not known
	// how many wait, nor which copies there are
	Looking     *int64     `json:"looking,omitempty"`
	DiskBytes   int64      `json:"disk_bytes"`             // of the disk that the store lies on
	FreeBytes   int64      `json:"free_bytes"`             // of these, for any process
	QueuedSince *time.Time `json:"queued_since,omitempty"` // of the file that waits longest to be packed
	LastPrune   *LastPrune `json:"last_prune,omitempty"`
	LastCheck   *LastCheck `json:"last_check,omitempty"`
}

// LastPrune is the last prune that ended.
type LastPrune struct {
	At         time.Time     `json:"at"`
	Grace      time.Duration `json:"grace_ns"`
	FreedBytes int64         `json:"freed_bytes"`
	ByItself   bool          `json:"by_itself"` // nobody asked for it: the disk filled up
}

// LastCheck is the last check that ended, and what those before it saw of data that it did not read.
type LastCheck struct {
	At       time.Time `json:"at"`
	ReadData bool      `json:"read_data"`
	Problems int64     `json:"problems"` // that are known after it
	// of these: seen by reading data, by this check or one before it; only another one that reads all data
	// says that they are gone
	Data   int64      `json:"data_problems,omitempty"`
	DataAt *time.Time `json:"data_at,omitempty"` // when the last of those were seen
	Found  []Problem  `json:"found,omitempty"`   // the first of all problems, without tensors
}

// Unknown is how many files something is not known of yet.
type Unknown struct {
	Files int  `json:"files"`
	More  bool `json:"more,omitempty"` // others too, which are not counted
}

// Queue is the files that wait to be packed.
type Queue struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Waiting is the files that are not packed yet, and why not, if it is not just that packing takes its time.
type Waiting struct {
	Queue
	Why string `json:"why,omitempty"`
	// Unknown: there are more, perhaps: the daemon has not looked at all names since it started
	Unknown bool `json:"unknown,omitempty"`
	// Unmounted: the store is not mounted. Nothing is packed, and it is not looked what is to be
	Unmounted bool `json:"unmounted,omitempty"`
}

// Failure is a file that could not be packed, or whose local copy could not be evicted, and is tried again.
type Failure struct {
	Path     string    `json:"path"`
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
}

// The values of File.State and Entry.State.
const (
	StatePlain    = "plain"    // a file of the host, not packed
	StateResident = "resident" // packed, with a local copy
	StatePacked   = "packed"   // packed, without one
	StateRemote   = "remote"   // packed, and the remote alone may have all of its bytes
)

// File is one file and its tensors, in the order of their offsets in the file.
type File struct {
	Path   string `json:"path"` // relative to the mount's root
	Format string `json:"format"`
	State  string `json:"state"` // empty for a folder
	View   bool   `json:"view"`  // synthesised from another file
	Size   int64  `json:"size"`
	// what its chunks and manifest take in segments, shared ones included
	Stored   int64    `json:"stored_bytes"`
	Manifest string   `json:"manifest,omitempty"`
	Artifact string   `json:"artifact,omitempty"`
	Notes    []string `json:"notes,omitempty"` // what is not told, and why
	Tensors  []Tensor `json:"tensors"`
}

// Tensor is one named array of a File.
type Tensor struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"`
	Offset int64   `json:"offset"` // of its region in the file
	Hash   string  `json:"hash,omitempty"`
	// other files that hold the same bytes, relative to the mount's root; sorted
	SharedWith []string `json:"shared_with"`
	Shared     int      `json:"shared"`           // how many there are; SharedWith may be cut short
	Pieces     int      `json:"pieces,omitempty"` // how many it is stored in; 0: it is in one
	// how it is stored, where that is with the help of others; nil also where there are very many tensors
	StoredAs *StoredAs `json:"stored_as,omitempty"`

	// by Inspect; nil where the elements are no numbers of whole bytes
	Stats *TensorStats `json:"stats,omitempty"`
}

// PruneOptions say what Prune may take.
type PruneOptions struct {
	Grace time.Duration // what was written less than this ago stays
	// share of a segment, 0 to 1, that may lie unused before the rest is moved and the file removed
	MaxUnused float64
	DryRun    bool
}

// Pruned is what Prune did, or would do.
type Pruned struct {
	DryRun   bool `json:"dry_run"`
	Segments int  `json:"segments"`
	Young    int  `json:"young_segments"` // left alone: written within the grace period
	// bytes that no file needs, and a prune without grace would take: in these, and what these need elsewhere
	YoungBytes int64 `json:"young_bytes"`
	Damaged    int   `json:"damaged_segments"` // left alone: see check
	// chunks, lists and manifests in use, in the segments looked at
	LiveRecords int64 `json:"live_records"`
	LiveBytes   int64 `json:"live_bytes"`
	DeadRecords int64 `json:"dead_records"` // not in use, and removed
	DeadBytes   int64 `json:"dead_bytes"`
	RoomBytes   int64 `json:"room_bytes"`   // what these took, with their headers: AloneBytes of a Du
	FreedBytes  int64 `json:"freed_bytes"`  // the disk got back; of a dry run, about what it would get
	CopiedBytes int64 `json:"copied_bytes"` // written to that end
	Punched     int   `json:"punched_segments"`
	Removed     int   `json:"removed_segments"`
	NotPunched  int   `json:"unpunched_segments"` // in which this disk makes no holes

	// chunks that no file names, and that stay because files are computed of them; how many files that are,
	// and about what they would take if they were stored alone
	BaseBytes      int64 `json:"base_bytes"`
	BaseFiles      int   `json:"base_files"`
	BaseAloneBytes int64 `json:"base_alone_bytes"`
	// there is no room to store some of them alone that would give back more
	BaseNoRoom bool `json:"base_no_room,omitempty"`
	// what was stored alone so that such chunks could go; of a dry run, about what would be
	ApartBytes int64 `json:"apart_bytes"`
}

// CompactOptions say what Compact may do.
type CompactOptions struct{ DryRun bool }

// Compacted is what Compact did, or would do.
type Compacted struct {
	DryRun bool `json:"dry_run"`
	Files  int  `json:"files"`        // packed ones, that were looked at
	Passed int  `json:"passed_files"` // of which something could not be read: see check
	// that were read and encoded; of a tensor where it does not pay only some are
	Looked       int64 `json:"looked_chunks"`
	Chunks       int64 `json:"chunks"`        // that were encoded again
	BytesBefore  int64 `json:"bytes_before"`  // what these took
	BytesAfter   int64 `json:"bytes_after"`   // what they take
	FreedBytes   int64 `json:"freed_bytes"`   // the disk got back
	CopiedBytes  int64 `json:"copied_bytes"`  // written to that end
	SegmentBytes int64 `json:"segment_bytes"` // what all segments take now
}

// CheckOptions say how far Check goes.
type CheckOptions struct {
	ReadData bool    // read and hash the content of what is stored
	Subset   float64 // with ReadData: that share of it, 0 to 1; 0 is all
}

// Checked is what Check found.
type Checked struct {
	Files       int64     `json:"files"`
	Packed      int64     `json:"packed_files"`
	Segments    int64     `json:"segments"`
	Records     int64     `json:"records"`       // chunks, lists and manifests in the segments
	Entries     int64     `json:"index_entries"` // of the index
	ReadRecords int64     `json:"read_records"`  // whose content was read
	ReadBytes   int64     `json:"read_bytes"`    // theirs, as stored
	ReadSeconds float64   `json:"read_seconds"`
	Seconds     float64   `json:"seconds"`
	PlainFiles  int64     `json:"plain_files"`               // that are not packed
	Verified    int64     `json:"verified_files"`            // of those: were compared with their checksums
	Remote      int64     `json:"remote_files,omitempty"`    // files whose bytes the remote has
	Unreached   int64     `json:"unreached_files,omitempty"` // of those: not checked, since it was not reached
	LostFound   int64     `json:"lost_found"`                // files in lost+found, which repairs moved there
	Damaged     int64     `json:"problem_count"`
	Data        int64     `json:"data_problems,omitempty"`  // of those: a check that reads no data does not see them
	Unseen      int64     `json:"known_problems,omitempty"` // besides: seen before, in data that was not read this time
	Problems    []Problem `json:"problems"`                 // cut short when there are many
	NotKept     string    `json:"not_kept,omitempty"`       // why Status and later checks will not know of it
}

// Problem is one thing that is wrong.
type Problem struct {
	// of the file that suffers, relative to the mount's root; "" when it is no file's
	Path        string   `json:"path,omitempty"`
	What        string   `json:"what"`
	Tensors     []string `json:"tensors,omitempty"` // of the file that cannot be read whole; cut short
	TensorCount int      `json:"tensor_count,omitempty"`
	// "index", "segments", "tree": the part that is to be repaired; "evict": the file is to be evicted
	Repair string `json:"repair,omitempty"`
	Data   bool   `json:"data,omitempty"` // a check that reads no data does not see it
}

// Repaired is what a repair did.
type Repaired struct {
	Part    string   `json:"part"`
	Actions []Action `json:"actions"`
	Records int64    `json:"records"` // in the store now
	Left    int      `json:"left"`    // damaged segments that could not be moved aside
}

// Left is what was done to make every file of a store plain. Of files that were plain before nothing is said.
type Left struct {
	Files   int      `json:"files"`   // made plain
	Bytes   int64    `json:"bytes"`   // of them
	Damaged []Skip   `json:"damaged"` // that could not be made plain, and why
	Kept    []string `json:"kept"`    // whose manifest cannot be read, and whose local copy is the file now
	Lost    []string `json:"lost"`    // that may have lost bytes before, since the disk did not take them
}

// Action is one thing that was done to a file of the tree, or of the store.
type Action struct {
	Path string `json:"path"`
	Did  string `json:"did"`
}
