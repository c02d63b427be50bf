package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/volume"
	"ckptfs/index/graph"
	"ckptfs/integration/daemon"
)

const askedOf = 2000

// asking tells how long a match takes of those who ask, in a store of models with architectures of a hundred
// layers: by a file in the mount, by the file of a stored model, by the socket, and without either in the
// process that has the store open.
func (b *bench) asking() error {
	dir, err := os.MkdirTemp(b.dir, "asking-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fresh, err := b.fresh(dir)
	if err != nil {
		return err
	}
	defer fresh.daemon.Clean()
	r := rand.New(rand.NewPCG(catalogueSize, 9))
	all := evolve(r, chain.genes, askedOf)
	for i, c := range all {
		if err := saveModel(filepath.Join(fresh.daemon.Dir, "runs/search", fmt.Sprint(i)), c); err != nil {
			return err
		}
	}
	if err := fresh.sync(); err != nil {
		return err
	}
	graphs := make([][]byte, 64)
	for i := range graphs {
		if graphs[i], err = document(chain.graph(mutant(r,
			all[len(all)-1-r.IntN(1000)].genome))); err != nil {
			return err
		}
	}
	row, err := fresh.askings("aged evolution", graphs, filepath.Join("search", fmt.Sprint(len(all)-1)))
	if err != nil {
		return err
	}
	if err := fresh.daemon.Stop(); err != nil {
		return err
	}
	within, err := askedWithin(fresh.daemon.Store, graphs)
	if err != nil {
		return err
	}
	cold, err := askedFirst(fresh.daemon, filepath.Join("runs/search", fmt.Sprint(len(all)-1)))
	if err != nil {
		return err
	}
	table(fmt.Sprintf("a match among %d models of about 100 layers, %s", askedOf, askedHow),
		append(slices.Clone(askedBy), "in process", "first of a daemon"),
		[][]string{append(row, within, cold)})
	return nil
}

// askedFirst times `match --like` right after a mount, the start of the command included: median of five, µs.
func askedFirst(d *daemon.Daemon, step string) (string, error) {
	var s sample
	for range 5 {
		if err := d.Start(); err != nil {
			return "", err
		}
		start := time.Now()
		_, err := d.CLI("match", "--like", filepath.Join(d.Dir, step))
		s.add(time.Since(start).Seconds() * 1e6)
		if err := errors.Join(err, d.Stop()); err != nil {
			return "", err
		}
	}
	return digits(s.median()), nil
}

// What askings tells.
var askedBy = []string{"", ".ckptfs/query", ".ckptfs/lcp", "socket, as known", "socket, after looking"}

const askedHow = "when all is quiet, the time until its answer is read, µs: median (99 of a hundred)"

// saveModel writes a step: a checkpoint with two small tensors for each dense layer, its architecture, its
// quality.
func saveModel(dir string, c candidate) error {
	g := chain.graph(c.genome)
	arch, err := document(g)
	if err != nil {
		return err
	}
	var entries []safetensors.Entry
	size := int64(0)
	for i := range g.Vertices {
		for _, p := range paramsOf(g, i) {
			entries = append(entries, safetensors.Entry{Name: p.Tensor, DType: p.DType, Shape: p.Shape})
			size += entries[len(entries)-1].NumBytes()
		}
	}
	safetensors.Sort(entries)
	file, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		return err
	}
	data := make([]byte, size)
	copy(data, fmt.Sprint(c.quality))
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "arch.json"), arch, 0o644),
		os.WriteFile(filepath.Join(dir, "metrics.json"), fmt.Appendf(nil, `{"quality": %g}`,
			c.quality), 0o644),
		os.WriteFile(filepath.Join(dir, "model.safetensors"), append(file, data...), 0o644))
}

// paramsOf are the tensors of a layer.
func paramsOf(g *graph.Graph, i int) []graph.Param {
	if g.Vertices[i].Op != "Dense" {
		return nil
	}
	return []graph.Param{
		{Tensor: fmt.Sprintf("layer%d.weight", i), DType: formats.F32, Shape: []int64{4, 4}},
		{Tensor: fmt.Sprintf("layer%d.bias", i), DType: formats.F32, Shape: []int64{4}},
	}
}

// document is a graph as GRAPH.json.
func document(g *graph.Graph) ([]byte, error) {
	type param struct {
		Name  string  `json:"name"`
		DType string  `json:"dtype"`
		Shape []int64 `json:"shape"`
	}
	type node struct {
		ID     string          `json:"id"`
		Op     string          `json:"op"`
		Config json.RawMessage `json:"cfg"`
		In     []string        `json:"in"`
		Comm   bool            `json:"comm,omitempty"`
		Params []param         `json:"params,omitempty"`
	}
	name := func(i int) string { return fmt.Sprintf("layer%d", i) }
	var nodes []node
	for i, v := range g.Vertices {
		n := node{ID: name(i), Op: v.Op, Config: json.RawMessage(v.Config),
			Comm: v.Commutative, In: []string{}}
		for _, in := range v.Inputs {
			n.In = append(n.In, name(in.Vertex))
		}
		for _, p := range paramsOf(g, i) {
			n.Params = append(n.Params, param{p.Tensor, string(p.DType), p.Shape})
		}
		nodes = append(nodes, n)
	}
	return json.Marshal(map[string]any{"v": 1, "nodes": nodes})
}

// askings times what a match takes, end to end: a row of askedBy. step is RUN/STEP of a stored model.
func (b *bench) askings(name string, graphs [][]byte, step string) ([]string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.daemon.Store, "control.sock"))
	}}}
	file := filepath.Join(b.daemon.Dir, ".ckptfs/query/bench")
	post := func(how string) func([]byte) ([]byte, error) {
		return func(graph []byte) ([]byte, error) {
			r, err := client.Post("http://ckptfs/v1/match"+how, "application/json", bytes.NewReader(graph))
			if err != nil {
				return nil, err
			}
			defer r.Body.Close()
			return io.ReadAll(r.Body)
		}
	}
	row := []string{name}
	for _, ask := range []func([]byte) ([]byte, error){
		func(graph []byte) ([]byte, error) {
			if err := os.WriteFile(file, graph, 0o600); err != nil {
				return nil, err
			}
			return os.ReadFile(file)
		},
		func([]byte) ([]byte, error) { return os.ReadFile(filepath.Join(b.daemon.Dir, ".ckptfs/lcp", step)) },
		post("?as_known=1"), post(""),
	} {
		took, err := timed(graphs, ask)
		if err != nil {
			return nil, err
		}
		row = append(row, took)
	}
	return row, os.Remove(file)
}

// timed asks again and again, and tells how long the answers took.
func timed(graphs [][]byte, ask func(graph []byte) ([]byte, error)) (string, error) {
	const questions, first = 2000, 10
	var s sample
	for i := range first + questions {
		start := time.Now()
		p, err := ask(graphs[i%len(graphs)])
		if err != nil {
			return "", err
		}
		if took := time.Since(start); i >= first {
			s.add(took.Seconds() * 1e6)
		}
		var a struct{ Match *struct{ Length int } }
		if err := json.Unmarshal(p, &a); err != nil || a.Match == nil {
			return "", fmt.Errorf("no answer: %.200s", p)
		}
	}
	slices.Sort(s)
	return fmt.Sprintf("%s (%s)", digits(s.median()), digits(s[len(s)*99/100])), nil
}

// askedWithin times what a match takes in the process that has the store open, until it is JSON.
func askedWithin(store string, graphs [][]byte) (string, error) {
	v, err := volume.Open(volume.Options{Dir: store, ReadOnly: true})
	if err != nil {
		return "", err
	}
	took, err := timed(graphs, func(graph []byte) ([]byte, error) {
		a, err := v.Requests().Match(context.Background(), control.MatchOptions{Graph: graph, AsKnown: true})
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	})
	return took, errors.Join(err, v.Close(context.Background()))
}
