package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ckptfs/fs/control"
)

// ofStatus are the metrics of the moment.
var ofStatus = []metric[control.Status]{
	gauge("start_time_seconds", "When the daemon started, in seconds since the epoch.",
		func(s *control.Status) float64 { return float64(s.Started.UnixMilli()) / 1e3 }),
	{desc("mount_info", "1; the labels say what is mounted where, and how resident files are served.",
		"mode", "store", "mountpoint"), prometheus.GaugeValue,
		func(s *control.Status, send send) { send(1, s.Mode, s.Store, s.Mountpoint) }},
	gauge("disk_bytes", "Size of the disk that the store lies on.",
		func(s *control.Status) float64 { return float64(s.DiskBytes) }),
	gauge("disk_free_bytes", "Bytes of that disk that are free for any process.",
		func(s *control.Status) float64 { return float64(s.FreeBytes) }),

	gauge("queue_files", "Closed files that wait to be packed.",
		func(s *control.Status) float64 { return float64(s.Queue.Files) }),
	gauge("queue_bytes", "Bytes of the closed files that wait to be packed.",
		func(s *control.Status) float64 { return float64(s.Queue.Bytes) }),
	gauge("queue_age_seconds", "For how long the oldest file waits to be packed; 0 when none does.",
		func(s *control.Status) float64 {
			if s.QueuedSince == nil {
				return 0
			}
			return time.Since(*s.QueuedSince).Seconds()
		}),
	gauge("packing_held", "1 while files wait to be packed because other programs use the processors.",
		func(s *control.Status) float64 {
			return truth(s.PackingWaits != "")
		}),
	gauge("unpacked_bytes", "Bytes of files that are to be packed and are not yet, open ones included.",
		func(s *control.Status) float64 { return float64(s.UnpackedBytes) }),
	gauge("unpacked_limit_bytes", "The bound on ckptfs_unpacked_bytes (--max-unpacked); negative for none.",
		func(s *control.Status) float64 { return float64(s.MaxUnpacked) }),
	gauge("waiting_closes", "Closes of files that wait for packing.",
		func(s *control.Status) float64 { return float64(s.WaitingCloses) }),
	gauge("cache_bytes", "Bytes of the local copies of packed files, a cache on the disk.",
		func(s *control.Status) float64 { return float64(s.ResidentBytes) }),
	gauge("cache_limit_bytes", "The bound on ckptfs_cache_bytes (--hot-size).",
		func(s *control.Status) float64 { return float64(s.HotSize) }),
	gauge("pinned_bytes", "Bytes of local copies that rules of the store hold, beside ckptfs_cache_bytes.",
		func(s *control.Status) float64 { return float64(s.PinnedBytes) }),
	gauge("failing_files", "Files whose packing failed, and is tried again.",
		func(s *control.Status) float64 { return float64(len(s.Failures)) }),
	gauge("open_files", "Distinct files that programs have open.",
		func(s *control.Status) float64 { return float64(s.OpenFiles) }),

	since("last_prune_timestamp_seconds", "When the last prune ended, since the epoch.",
		func(s *control.Status) (at time.Time) {
			if s.LastPrune != nil {
				at = s.LastPrune.At
			}
			return at
		}),
	since("last_check_timestamp_seconds", "When the last check of the mounted store ended, since the epoch.",
		func(s *control.Status) (at time.Time) {
			if s.LastCheck != nil {
				at = s.LastCheck.At
			}
			return at
		}),
	{desc("last_check_problems", "Problems known after the last check of the mounted store."),
		prometheus.GaugeValue, func(s *control.Status, send send) {
			if s.LastCheck != nil {
				send(float64(s.LastCheck.Problems))
			}
		}},

	ofRemote("remote_up", "1 while the store's remote is reached, as far as is known.",
		func(r *control.RemoteStatus) (float64, bool) { return truth(r.Offline == nil), true }),
	ofRemote("remote_blocked", "1 while something other than the network keeps the store from publishing.",
		func(r *control.RemoteStatus) (float64, bool) { return truth(r.Problem != ""), true }),
	ofRemote("remote_last_contact_timestamp_seconds", "When the remote answered last, since the epoch.",
		func(r *control.RemoteStatus) (float64, bool) { return moment(r.LastContact) }),
	ofRemote("remote_last_commit_timestamp_seconds", "When the store published last, since the epoch.",
		func(r *control.RemoteStatus) (float64, bool) { return moment(r.LastCommit) }),
	ofRemote("remote_unpublished_files", "Files that the store has and its remote has not.",
		func(r *control.RemoteStatus) (float64, bool) {
			if r.Unpublished == nil {
				return 0, false
			}
			return float64(r.Unpublished.Files), true
		}),
	ofRemote("remote_unpublished_bytes", "Bytes of the files that the store has and its remote has not.",
		func(r *control.RemoteStatus) (float64, bool) {
			if r.Unpublished == nil {
				return 0, false
			}
			return float64(r.Unpublished.Bytes), true
		}),
	ofRemote("remote_manual", "1 if the store publishes when a command says so, and not before.",
		func(r *control.RemoteStatus) (float64, bool) { return truth(r.Manual), true }),
	ofRemote("remote_conflicts", "Names of which the remote has several versions.",
		func(r *control.RemoteStatus) (float64, bool) {
			if r.Conflicts == nil {
				return 0, false
			}
			return float64(*r.Conflicts), true
		}),
}

// ofRemote is a gauge of a store that is joined to a remote; of() reports whether the value is known.
func ofRemote(name, help string, of func(*control.RemoteStatus) (float64, bool)) metric[control.Status] {
	ask := func(s *control.Status, send send) {
		if s.Remote == nil {
			return
		}
		if v, known := of(s.Remote); known {
			send(v)
		}
	}
	return metric[control.Status]{desc(name, help), prometheus.GaugeValue, ask}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// moment is a time in seconds since the epoch, if it is one.
func moment(t time.Time) (seconds float64, is bool) {
	return float64(t.UnixMilli()) / 1e3, !t.IsZero()
}

// since is the moment of something, which is not sent before that.
func since(name, help string, at func(*control.Status) time.Time) metric[control.Status] {
	of := func(s *control.Status, send send) {
		if v, is := moment(at(s)); is {
			send(v)
		}
	}
	return metric[control.Status]{desc(name, help), prometheus.GaugeValue, of}
}

// ofStats are the metrics of the whole store, by the last count.
var ofStats = []metric[whole]{
	gauge("files", "Files in the store.",
		func(s *whole) float64 { return float64(s.Files) }),
	gauge("packed_files", "Files that are packed.",
		func(s *whole) float64 { return float64(s.Packed) }),
	gauge("damaged_files", "Packed files whose manifest or lists of chunks cannot be read.",
		func(s *whole) float64 { return float64(s.Damaged) }),
	gauge("lost_files", "Files of which the disk did not take all that was written.",
		func(s *whole) float64 { return float64(s.Lost) }),
	gauge("chunks", "Distinct chunks.",
		func(s *whole) float64 { return float64(s.Chunks) }),
	gauge("tensors", "Tensors in all files, repeated ones counted each time.",
		func(s *whole) float64 { return float64(s.Tensors) }),
	gauge("logical_bytes", "Sum of the sizes of all files, hard links counted once.",
		func(s *whole) float64 { return float64(s.LogicalBytes) }),
	gauge("unique_bytes", "Bytes of the distinct chunks, before compression.",
		func(s *whole) float64 { return float64(s.UniqueBytes) }),
	gauge("stored_bytes", "Bytes that segments and index take on the disk.",
		func(s *whole) float64 { return float64(s.StoredBytes) }),
	gauge("dead_bytes", "The part of the segments that no file refers to.",
		func(s *whole) float64 { return float64(s.DeadBytes) }),
	gauge("plain_bytes", "Bytes of files that are stored as they are: small, or not packed yet.",
		func(s *whole) float64 { return float64(s.PlainBytes) }),
	gauge("runs", "Runs, which are the folders in runs/ with files.",
		func(s *whole) float64 { return float64(len(s.Runs)) }),
	gauge("torn_steps", "Steps of which a file was being written when a daemon died, or its program was killed.",
		func(s *whole) float64 { return float64(s.torn) }),
}

// ofCounters are the metrics since the daemon's start, and those of its memory and handles.
var ofCounters = []metric[control.Counters]{
	counter("packed_files_total", "Files packed since the start.",
		func(n *control.Counters) float64 { return float64(n.PackedFiles) }),
	counter("packed_bytes_total", "Bytes of the files packed since the start.",
		func(n *control.Counters) float64 { return float64(n.PackedBytes) }),
	counter("pack_seconds_total", "Time spent on packing since the start, summed over its workers.",
		func(n *control.Counters) float64 { return n.PackSeconds }),
	counter("hydrated_files_total", "Packed files hydrated since the start.",
		func(n *control.Counters) float64 { return float64(n.HydratedFiles) }),
	counter("hydrated_bytes_total", "Bytes of the packed files hydrated since the start.",
		func(n *control.Counters) float64 { return float64(n.HydratedBytes) }),
	counter("evicted_files_total", "Packed files evicted since the start.",
		func(n *control.Counters) float64 { return float64(n.EvictedFiles) }),
	counter("evicted_bytes_total", "Bytes of the packed files evicted since the start.",
		func(n *control.Counters) float64 { return float64(n.EvictedBytes) }),

	counters("opens_total", "mode", "Opens of files, by how they are served.",
		func(n *control.Counters, send send) {
			for mode, v := range n.Opens {
				send(float64(v), mode)
			}
		}),
	counters("reads_total", "source",
		"Reads that the daemon answered, by where the bytes came from; passthrough and the page cache are not seen.",
		func(n *control.Counters, send send) {
			for source, v := range n.Reads {
				send(float64(v.Calls), source)
			}
		}),
	counters("read_bytes_total", "source",
		"Bytes of the reads that the daemon answered, by where they came from.",
		func(n *control.Counters, send send) {
			for source, v := range n.Reads {
				send(float64(v.Bytes), source)
			}
		}),
	counter("segment_reads_total", "Records read from segments.",
		func(n *control.Counters) float64 { return float64(n.Segments.Calls) }),
	counter("segment_read_bytes_total", "Bytes of the records read from segments, as stored.",
		func(n *control.Counters) float64 { return float64(n.Segments.Bytes) }),
	counters("errors_total", "kind", "Failures, by what failed.",
		func(n *control.Counters, send send) {
			for kind, v := range n.Errors {
				send(float64(v), kind)
			}
		}),

	counter("chunk_cache_hits_total", "Chunks wanted that were in memory.",
		func(n *control.Counters) float64 { return float64(n.CacheHits) }),
	counter("chunk_cache_misses_total", "Chunks wanted that were not in memory.",
		func(n *control.Counters) float64 { return float64(n.CacheMisses) }),
	gauge("chunk_cache_bytes", "Memory that decoded chunks take.",
		func(n *control.Counters) float64 { return float64(n.CacheBytes) }),
	gauge("handles", "Open files and directories.",
		func(n *control.Counters) float64 { return float64(n.Handles) }),
}
