package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ckptfs/fs/control"
)

// desc describes a metric: its name without the prefix, what it is, its labels.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ckptfs_"+name, help, labels, nil)
}

// collector asks the source at each scrape.
type collector struct {
	src    Source
	survey *survey

	up, start, mode                                                          *prometheus.Desc
	maxUnpacked, closes                                                      *prometheus.Desc
	queueFiles, queueBytes, unpacked, resident, hotSize, failing, open       *prometheus.Desc
	surveyAge, files, packedFiles, damagedFiles, chunks, tensors             *prometheus.Desc
	logical, unique, stored, dead, plain                                     *prometheus.Desc
	packDone, packBytes, packSeconds, hydrated, hydratedB, evicted, evictedB *prometheus.Desc
	opens, reads, readBytes, segReads, segBytes                              *prometheus.Desc
	errors, hits, misses, cacheBytes, handles                                *prometheus.Desc
}

func newCollector(ctx context.Context, src Source) *collector {
	return &collector{
		src:    src,
		survey: &survey{ctx: ctx, count: src.Stats, now: time.Now},

		up:    desc("up", "1 when the volume answered this scrape in time."),
		start: desc("start_time_seconds", "When the daemon started, in seconds since the epoch."),
		mode:  desc("mount_info", "1; the label says how resident files are served.", "mode"),

		queueFiles:  desc("queue_files", "Closed files that wait to be packed."),
		queueBytes:  desc("queue_bytes", "Bytes of the closed files that wait to be packed."),
		unpacked:    desc("unpacked_bytes", "Bytes of files that are to be packed and are not yet, open ones included."),
		maxUnpacked: desc("unpacked_limit_bytes", "The bound on what waits to be packed (--max-unpacked); negative for none."),
		closes:      desc("waiting_closes", "Closes of files that wait for packing."),
		resident:    desc("cache_bytes", "Bytes of packed files in place, a cache on the disk."),
		hotSize:     desc("cache_limit_bytes", "The bound on ckptfs_cache_bytes (--hot-size)."),
		failing:     desc("failing_files", "Files whose packing failed, and is tried again."),
		open:        desc("open_files", "Distinct files that programs have open."),

		surveyAge:    desc("survey_age_seconds", "Age of the count that the metrics of the whole store are from."),
		files:        desc("files", "Files in the store."),
		packedFiles:  desc("packed_files", "Files that are packed."),
		damagedFiles: desc("damaged_files", "Packed files whose manifest or lists of chunks cannot be read."),
		chunks:       desc("chunks", "Distinct chunks."),
		tensors:      desc("tensors", "Tensors in all files, repeated ones counted each time."),
		logical:      desc("logical_bytes", "Sum of the sizes of all files, hard links counted once."),
		unique:       desc("unique_bytes", "Bytes of the distinct chunks, before compression."),
		stored:       desc("stored_bytes", "Bytes that segments and index take on the disk."),
		dead:         desc("dead_bytes", "The part of the segments that no file refers to."),
		plain:        desc("plain_bytes", "Bytes of files that are stored as they are: small, or not packed yet."),

		packDone:    desc("packed_files_total", "Files packed since the start."),
		packBytes:   desc("packed_bytes_total", "Bytes of the files packed since the start."),
		packSeconds: desc("pack_seconds_total", "Time spent on packing since the start, summed over its workers."),
		hydrated:    desc("hydrated_files_total", "Packed files filled in since the start."),
		hydratedB:   desc("hydrated_bytes_total", "Bytes of the packed files filled in since the start."),
		evicted:     desc("evicted_files_total", "Packed files evicted since the start."),
		evictedB:    desc("evicted_bytes_total", "Bytes of the packed files evicted since the start."),
		opens:       desc("opens_total", "Opens of files, by how they are served.", "mode"),
		reads:       desc("reads_total", "Reads that the daemon answered, by where the bytes came from; passthrough and the page cache are not seen.", "source"),
		readBytes:   desc("read_bytes_total", "Bytes of the reads that the daemon answered, by where they came from.", "source"),
		segReads:    desc("segment_reads_total", "Records read from segments."),
		segBytes:    desc("segment_read_bytes_total", "Bytes of the records read from segments, as stored."),
		errors:      desc("errors_total", "Failures, by what failed.", "kind"),
		hits:        desc("chunk_cache_hits_total", "Chunks wanted that were in memory."),
		misses:      desc("chunk_cache_misses_total", "Chunks wanted that were not in memory."),
		cacheBytes:  desc("chunk_cache_bytes", "Memory that decoded chunks take."),
		handles:     desc("handles", "Open files and directories."),
	}
}

// Describe names nothing: what there is depends on what the volume answers. Nobody else registers with this registry.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks and sends.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	if st := c.status(); st != nil {
		gauge(c.up, 1)
		gauge(c.start, float64(st.Started.UnixMilli())/1e3)
		gauge(c.mode, 1, st.Mode)
		gauge(c.queueFiles, float64(st.Queue.Files))
		gauge(c.queueBytes, float64(st.Queue.Bytes))
		gauge(c.unpacked, float64(st.UnpackedBytes))
		gauge(c.maxUnpacked, float64(st.MaxUnpacked))
		gauge(c.closes, float64(st.WaitingCloses))
		gauge(c.resident, float64(st.ResidentBytes))
		gauge(c.hotSize, float64(st.HotSize))
		gauge(c.failing, float64(len(st.Failures)))
		gauge(c.open, float64(st.OpenFiles))
	} else {
		gauge(c.up, 0)
	}
	if st, at := c.survey.get(); st != nil {
		gauge(c.surveyAge, c.survey.now().Sub(at).Seconds())
		gauge(c.files, float64(st.Files))
		gauge(c.packedFiles, float64(st.Packed))
		gauge(c.damagedFiles, float64(st.Damaged))
		gauge(c.chunks, float64(st.Chunks))
		gauge(c.tensors, float64(st.Tensors))
		gauge(c.logical, float64(st.LogicalBytes))
		gauge(c.unique, float64(st.UniqueBytes))
		gauge(c.stored, float64(st.StoredBytes))
		gauge(c.dead, float64(st.DeadBytes))
		gauge(c.plain, float64(st.PlainBytes))
	}
	n := c.src.Counters()
	count(c.packDone, float64(n.PackedFiles))
	count(c.packBytes, float64(n.PackedBytes))
	count(c.packSeconds, n.PackSeconds)
	count(c.hydrated, float64(n.HydratedFiles))
	count(c.hydratedB, float64(n.HydratedBytes))
	count(c.evicted, float64(n.EvictedFiles))
	count(c.evictedB, float64(n.EvictedBytes))
	for mode, v := range n.Opens {
		count(c.opens, float64(v), mode)
	}
	for source, v := range n.Reads {
		count(c.reads, float64(v.Calls), source)
		count(c.readBytes, float64(v.Bytes), source)
	}
	count(c.segReads, float64(n.Segments.Calls))
	count(c.segBytes, float64(n.Segments.Bytes))
	for kind, v := range n.Errors {
		count(c.errors, float64(v), kind)
	}
	count(c.hits, float64(n.CacheHits))
	count(c.misses, float64(n.CacheMisses))
	gauge(c.cacheBytes, float64(n.CacheBytes))
	gauge(c.handles, float64(n.Handles))
}

// status asks for the volume's, nil when it does not answer in time.
func (c *collector) status() *control.Status {
	ctx, cancel := context.WithTimeout(c.survey.ctx, patience)
	defer cancel()
	answer := make(chan *control.Status, 1)
	go func() {
		st, err := c.src.Status(ctx)
		if err != nil {
			st = nil
		}
		answer <- st
	}()
	select {
	case st := <-answer:
		return st
	case <-ctx.Done():
		return nil
	}
}
