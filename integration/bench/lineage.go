package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"ckptfs/index/graph"
	"ckptfs/index/prefix"
)

const (
	catalogueSize = 60_000
	catalogueAsks = 10_000
)

// catalogues are the ways in which a catalogue comes about. The last has equal branches, among which a scan
// would have to search.
var catalogues = []struct {
	name string
	space
	make  func(r *rand.Rand, genes, n int) []candidate
	twins bool
}{
	{"aged evolution", chain, evolve, false},
	{"random and mutate", chain, mutate, false},
	{"20 branches, aged evolution", branched(false), evolve, false},
	{"20 branches that begin alike", branched(true), evolve, true},
}

// lineage asks the index of architectures, beside a scan of compact graphs and Redis.
func (b *bench) lineage() error {
	var rows [][]string
	for _, c := range catalogues {
		if len(b.named) > 0 && !hasPrefix(b.named, c.name) {
			continue
		}
		r := rand.New(rand.NewPCG(catalogueSize, 7))
		all := c.make(r, c.genes, catalogueSize)
		// made when they are needed: a daemon that starts has no heap to look through
		asked := func(n int) []*graph.Graph {
			r := rand.New(rand.NewPCG(catalogueSize, 8))
			out := make([]*graph.Graph, n)
			for i := range out {
				out[i] = c.graph(mutant(r, all[len(all)-1-r.IntN(1000)].genome))
			}
			return out
		}
		row, err := b.matches(all, c.graph, asked, c.twins)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, append([]string{c.name}, row...))
	}
	table(fmt.Sprintf("longest common prefix: %d architectures, %d queries, each a mutant of one of the latest 1,000; one core by processor time, all cores (%d) and Redis by the clock",
		catalogueSize, catalogueAsks, runtime.NumCPU()),
		[]string{"", "layers", "in common", "queries/s, one core", "all", "scan", "ratio", "Redis, MGET", "ratio", "KiB a model", "insert, µs", "cold start, s", "of records, s", "inexact"}, rows)
	return nil
}

func hasPrefix(all []string, name string) bool {
	for _, s := range all {
		if strings.HasPrefix(name, s) {
			return true
		}
	}
	return false
}

var graphsBucket = []byte("graphs")

// matches measures one catalogue.
func (b *bench) matches(all []candidate, graphOf func(genome) *graph.Graph,
	askedFor func(n int) []*graph.Graph, twins bool) ([]string, error) {
	path := filepath.Join(b.dir, "graphs.db")
	if err := b.writeGraphs(path, all, graphOf); err != nil {
		return nil, err
	}
	before := heap()
	start := time.Now()
	c, err := loadGraphs(path)
	if err != nil {
		return nil, err
	}
	made := time.Since(start)
	memory := heap() - before
	snapshot := filepath.Join(b.dir, "catalogue")
	if err := os.WriteFile(snapshot, c.Snapshot(func(uint64) (t prefix.Tag) { return t }),
		0o600); err != nil {
		return nil, err
	}
	c = nil
	runtime.GC()
	start = time.Now()
	p, err := os.ReadFile(snapshot)
	if err != nil {
		return nil, err
	}
	if c, err = prefix.Restore(p, func(prefix.Model, prefix.Tag) bool { return true }); err != nil {
		return nil, err
	}
	if _, ok := c.Find(askedFor(1)[0], prefix.Query{}); !ok {
		return nil, errors.New("no answer")
	}
	cold := time.Since(start)
	p = nil

	// One by one, as models are committed.
	runtime.LockOSThread()
	var insert time.Duration
	one := prefix.New()
	for i := range all {
		g := graphOf(all[i].genome)
		start := cpuOfThread()
		if err := one.Add(prefix.Model{Seq: uint64(i), Quality: all[i].quality}, g); err != nil {
			return nil, err
		}
		insert += cpuOfThread() - start
	}
	one = nil
	runtime.GC()

	asked := askedFor(catalogueAsks)
	answers := make([]prefix.Match, len(asked))
	var common, vertices, inexact int
	began := cpuOfThread()
	for i, g := range asked {
		answers[i], _ = c.Find(g, prefix.Query{})
	}
	ours := float64(len(asked)) / (cpuOfThread() - began).Seconds()
	runtime.UnlockOSThread()
	for i, g := range asked {
		common += answers[i].Length
		vertices += len(g.Vertices)
		if !answers[i].Exact {
			inexact++
		}
	}
	start = time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(asked); i = next.Add(1) - 1 {
				c.Find(asked[i], prefix.Query{})
			}
		})
	}
	wg.Wait()
	allCores := float64(len(asked)) / time.Since(start).Seconds()

	n := float64(len(asked))
	row := []string{digits(float64(vertices) / n), digits(float64(common) / n), digits(ours),
		digits(allCores), "–", "–", "–", "–",
		fmt.Sprintf("%.2f", float64(memory)/float64(len(all))/1024),
		digits(insert.Seconds() * 1e6 / float64(len(all))), fmt.Sprintf("%.2f", cold.Seconds()),
		fmt.Sprintf("%.2f", made.Seconds()),
		fmt.Sprintf("%.1f %%", 100*float64(inexact)/n)}
	if twins {
		return row, nil
	}
	c = nil
	scan, redis, err := b.others(all, graphOf, asked, answers)
	if err != nil {
		return nil, err
	}
	row[4], row[5] = digits(scan), fmt.Sprintf("%.0fx", ours/scan)
	row[6], row[7] = digits(redis), fmt.Sprintf("%.0fx", ours/redis)
	return row, nil
}

// others asks a scan and Redis some of the questions, and holds that they answer the same. It returns queries
// a second.
func (b *bench) others(all []candidate, graphOf func(genome) *graph.Graph, asked []*graph.Graph,
	answers []prefix.Match) (scan, redis float64, err error) {
	const scans, fetches = 100, 20
	l := labels{}
	stored := make([]scanned, len(all))
	for i := range all {
		stored[i] = scanned{all[i].quality, l.compact(graphOf(all[i].genome))}
	}
	questions := make([]compact, scans)
	for i := range questions {
		questions[i] = l.compact(asked[i])
	}
	same := func(i int, a answer) error {
		if m := &answers[i]; a.length != m.Length || a.seq != m.Model.Seq {
			return fmt.Errorf("query %d: the index answers %d layers of model %d, a scan %d of %d", i, m.Length, m.Model.Seq, a.length, a.seq)
		}
		return nil
	}
	runtime.LockOSThread()
	var p prefixer
	start := cpuOfThread()
	for i, g := range questions {
		if err := same(i, p.scan(stored, g)); err != nil {
			return 0, 0, err
		}
	}
	scan = scans / (cpuOfThread() - start).Seconds()
	runtime.UnlockOSThread()

	s, err := startRedis(b.dir)
	if err != nil {
		return 0, 0, err
	}
	defer s.close()
	if err := s.set(stored); err != nil {
		return 0, 0, err
	}
	clock := time.Now()
	for i, g := range questions[:fetches] {
		a, err := s.ask(&p, g, len(all))
		if err == nil {
			err = same(i, a)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return scan, fetches / time.Since(clock).Seconds(), nil
}

// writeGraphs makes a bbolt file of the records of a catalogue: by number, the quality and the graph's
// record.
func (b *bench) writeGraphs(path string, all []candidate, graphOf func(genome) *graph.Graph) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bolt.Tx) error {
		if tx.Bucket(graphsBucket) != nil {
			if err := tx.DeleteBucket(graphsBucket); err != nil {
				return err
			}
		}
		bucket, err := tx.CreateBucket(graphsBucket)
		if err != nil {
			return err
		}
		bucket.FillPercent = 1
		for i := range all {
			p, err := graphOf(all[i].genome).Encode()
			if err != nil {
				return err
			}
			value := append(binary.BigEndian.AppendUint64(nil, math.Float64bits(all[i].quality)), p...)
			if err := bucket.Put(binary.BigEndian.AppendUint64(nil, uint64(i)), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// loadGraphs makes a catalogue of such a file.
func loadGraphs(path string) (*prefix.Catalogue, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	c := prefix.New()
	err = db.View(func(tx *bolt.Tx) error {
		var keys, values [][]byte
		if err := tx.Bucket(graphsBucket).ForEach(func(k, v []byte) error {
			keys, values = append(keys, k), append(values, v)
			return nil
		}); err != nil {
			return err
		}
		var bad error
		c.Fill(len(keys), func(i int, r *graph.OutlineReader) (prefix.Model, *graph.Outline, error) {
			g, err := r.Read(values[i][8:])
			return prefix.Model{Seq: binary.BigEndian.Uint64(keys[i]),
				Quality: math.Float64frombits(binary.BigEndian.Uint64(values[i]))}, g, err
		}, func(_ int, err error) { bad = err })
		return bad
	})
	return c, err
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpuOfThread is the time that this thread ran: on a machine that others use, the clock says little.
func cpuOfThread() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
