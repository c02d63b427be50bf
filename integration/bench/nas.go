package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// nas is EvoStore's experiment of what a network architecture search stores, in small: 1,000 candidates with
// transfer, with and without retiring.
func (b *bench) nas() error {
	const candidates = 1000
	var rows, asked [][]string
	for _, retire := range []bool{false, true} {
		row, latency, err := b.search(candidates, retire)
		if err != nil {
			return err
		}
		rows, asked = append(rows, row), append(asked, latency)
	}
	table(fmt.Sprintf("%d candidates of aged evolution with transfer, population 100: MB; milliseconds, medians of all (of the last 100)", candidates),
		[]string{"", "HDF5, all", "HDF5, left", "ckptfs", "all/ckptfs", "left/ckptfs", "transferred",
			"match", "transfer", "save"}, rows)
	table("a match "+askedHow, askedBy, asked)
	return nil
}

func (b *bench) search(candidates int, retire bool) (row, latency []string, err error) {
	dir, err := os.MkdirTemp(b.dir, "nas-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	fresh, err := b.fresh(dir)
	if err != nil {
		return nil, nil, err
	}
	defer fresh.daemon.Clean()
	flag, name := "0", "all are kept"
	if retire {
		flag, name = "1", "retired when they leave"
	}
	out, err := b.pythonRun("nas.py", fresh.daemon.Dir, fmt.Sprint(candidates), flag, b.daemon.Bin)
	if err != nil {
		return nil, nil, err
	}
	type took struct{ Median, Last float64 }
	var r struct {
		All, Left             int64
		Transferred           float64
		Match, Transfer, Save took
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return nil, nil, err
	}
	if err := fresh.sync(); err != nil {
		return nil, nil, err
	}
	if _, err := fresh.daemon.CLI("prune", "--grace", "0", "--max-unused", "0",
		fresh.daemon.Dir); err != nil {
		return nil, nil, err
	}
	stored, err := diskUsage(filepath.Join(fresh.daemon.Store, "segments"))
	if err != nil {
		return nil, nil, err
	}
	left := r.Left
	if !retire {
		left = r.All
	}
	mb := func(n int64) string { return digits(float64(n) / 1e6) }
	ratio := func(n int64) string { return fmt.Sprintf("%.2fx", float64(n)/float64(stored)) }
	ms := func(l took) string { return fmt.Sprintf("%s (%s)", digits(1e3*l.Median), digits(1e3*l.Last)) }
	last := filepath.Join("nas", fmt.Sprint(candidates-1))
	graph, err := os.ReadFile(filepath.Join(fresh.daemon.Dir, "runs", last, "arch.json"))
	if err != nil {
		return nil, nil, err
	}
	if latency, err = fresh.askings(name, [][]byte{graph}, last); err != nil {
		return nil, nil, err
	}
	return []string{name, mb(r.All), mb(left), mb(stored), ratio(r.All), ratio(left),
		fmt.Sprintf("%.0f %%", 100*r.Transferred), ms(r.Match), ms(r.Transfer), ms(r.Save)}, latency, nil
}
