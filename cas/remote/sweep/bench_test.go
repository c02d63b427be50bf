package sweep_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
)

// many is a remote of files that need eight objects each, all of them live. What a listing says of them is
// made as it is asked for.
type many struct {
	bucket.Mem
	files int
}

const each = 8

// object is number j of file i. Ids of one j are ascending, those of a file far apart.
func (m *many) object(i, j int) (id record.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(j)<<61|uint64(i)<<(61-24)|0x5bd1e995)
	return id
}

func (m *many) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	if prefix != record.ClassData.Prefix() {
		return m.Mem.List(ctx, prefix, after)
	}
	return func(yield func(bucket.Info, error) bool) {
		for j := range each {
			for i := range m.files {
				key := record.ClassData.Key(m.object(i, j))
				if !yield(bucket.Info{Key: key, Size: 64 << 20}, nil) {
					return
				}
			}
		}
	}
}

// fill makes tables of 62,500 files, as large as those that writers merge, and a head for each four of them.
func (m *many) fill() {
	const inTable = 62_500
	put := func(key string, p []byte, err error) {
		must(err)
		_, err = m.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{})
		must(err)
	}
	var tables []record.Table
	for first := 0; first < m.files; first += inTable {
		w := record.Writer(fmt.Sprintf("writer.%08x", first/inTable/4))
		entries := make([]record.Entry, min(inTable, m.files-first))
		for i := range entries {
			deps := make([]record.ID, each)
			for j := range deps {
				deps[j] = m.object(first+i, j)
			}
			entries[i] = record.Entry{Path: fmt.Sprintf("runs/a/%07d/model.safetensors", first+i), Origin: w,
				Version: 1, File: &record.File{Size: 1, Manifest: cas.Sum(binary.AppendUvarint(nil,
					uint64(first+i))),
					Deps: deps, Plan: record.Ref{Object: deps[0], Off: 64, Stored: 1}}}
		}
		p, table, err := record.EncodeTable(w, record.ID{1, byte(first / inTable)}, entries)
		put(record.ClassTable.Key(table.ID), p, err)
		if tables = append(tables, table); len(tables) == 4 || first+inTable >= m.files {
			p, err = (&record.Head{Remote: remoteID, Instance: record.ID{2}, Commit: record.ID{3},
				Sequence: 1,
				Clock:    1, Tables: tables}).Encode(w)
			put(record.HeadKey(w), p, err)
			tables = nil
		}
	}
}

// A collection that finds nothing, of a million files and eight million objects unless -short. "peak-MiB" is
// what the process takes at most, with the encoded tables, which lie in memory here, too.
func BenchmarkMark(b *testing.B) {
	m := &many{files: 1_000_000}
	if testing.Short() {
		m.files = 100_000
	}
	m.fill()
	b.ReportAllocs()
	debug.FreeOSMemory()
	must(os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
	cpu := cpuTime()
	for b.Loop() {
		stats, err := sweep.Collect(context.Background(), m, sweep.Options{Remote: remoteID, Collector: carol,
			DryRun: true})
		if err != nil || stats.Entries != m.files || stats.Unreferenced.Objects > 0 {
			b.Fatal(stats, err)
		}
	}
	b.ReportMetric((cpuTime()-cpu).Seconds()/float64(b.N), "core-s/op")
	b.ReportMetric(float64(peak())/1024, "peak-MiB")
	tables := int64(0)
	for info := range m.List(context.Background(), record.ClassTable.Prefix(), "") {
		tables += info.Size
	}
	b.ReportMetric(float64(tables)/(1<<20), "tables-MiB")
}

// peak is the most memory that the process took, in KiB.
func peak() int {
	p, err := os.ReadFile("/proc/self/status")
	must(err)
	_, rest, _ := strings.Cut(string(p), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	must(err)
	return kib
}

// cpuTime is the processor time of the process.
func cpuTime() time.Duration {
	var u unix.Rusage
	must(unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
