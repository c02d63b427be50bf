package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// nas is EvoStore's experiment of what a network architecture search stores, in small: 1,000 candidates with transfer, with and without retiring.
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
		[]string{"", "HDF5, all", "HDF5, left", "ckptfs", "all/ckptfs", "left/ckptfs", "transferred", "match", "transfer", "save"}, rows)
	table("a match when all is quiet, the time until its answer is read, µs, median (lowest–highest)",
		[]string{"", ".ckptfs/query", "control socket, as known", "control socket, after looking"}, asked)
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
	if _, err := fresh.daemon.CLI("prune", "--grace", "0", "--max-unused", "0", fresh.daemon.Dir); err != nil {
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
	if latency, err = fresh.askings(name, fmt.Sprint(candidates-1)); err != nil {
		return nil, nil, err
	}
	return []string{name, mb(r.All), mb(left), mb(stored), ratio(r.All), ratio(left), fmt.Sprintf("%.0f %%", 100*r.Transferred), ms(r.Match), ms(r.Transfer), ms(r.Save)}, latency, nil
}

// askings times what a query takes, end to end: by the file in the mount, and by the daemon's socket.
func (b *bench) askings(name, step string) ([]string, error) {
	const queries = 300
	graph, err := os.ReadFile(filepath.Join(b.daemon.Dir, "runs/nas", step, "arch.json"))
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.daemon.Store, "control.sock"))
	}}}
	file := filepath.Join(b.daemon.Dir, ".ckptfs/query/bench")
	post := func(how string) func() ([]byte, error) {
		return func() ([]byte, error) {
			r, err := client.Post("http://ckptfs/v1/match"+how, "application/json", bytes.NewReader(graph))
			if err != nil {
				return nil, err
			}
			defer r.Body.Close()
			return io.ReadAll(r.Body)
		}
	}
	row := []string{name}
	for _, ask := range []func() ([]byte, error){func() ([]byte, error) {
		if err := os.WriteFile(file, graph, 0o600); err != nil {
			return nil, err
		}
		return os.ReadFile(file)
	}, post("?as_known=1"), post("")} {
		var s sample
		for range queries {
			start := time.Now()
			p, err := ask()
			if err != nil {
				return nil, err
			}
			s.add(time.Since(start).Seconds() * 1e6)
			var a struct{ Match *struct{ Length int } }
			if err := json.Unmarshal(p, &a); err != nil || a.Match == nil {
				return nil, fmt.Errorf("no answer: %.200s", p)
			}
		}
		row = append(row, s.text())
	}
	return row, os.Remove(file)
}
