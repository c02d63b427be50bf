package steps

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/record"
	"ckptfs/formats"
	"ckptfs/formats/torchzip"
	"ckptfs/index/runs"
)

// maxProblem bounds what is told of a step's problems, but for the last.
const maxProblem = 1 << 10

// readMetrics reads the metrics of a step, which is open. What cannot be read is a problem of this
// step alone.
func (s *Steps) readMetrics(fd int, runName string, st *Step) {
	all := map[string]float64{}
	note := func(what string, err error) {
		switch {
		case st.Problem == "":
			st.Problem = fmt.Sprintf("%s: %v", what, err)
		case len(st.Problem) < maxProblem:
			st.Problem += fmt.Sprintf("; %s: %v", what, err)
		}
	}
	remote := false
	switch err := s.readScores(runName, st, all); {
	case errors.Is(err, ErrRemote):
		remote = true
	case err != nil:
		note("*"+LightningSuffix, err)
	}
	for _, src := range runs.Sources {
		if !st.Files.Has(src.Name) {
			continue
		}
		b, err := s.Files.ReadSmall(path.Join(Dir, runName, st.Name, src.Name), src.Max)
		if errors.Is(err, ErrRemote) {
			remote = true
			continue
		}
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		var found map[string]float64
		if err == nil {
			found, err = src.Parse(b)
		}
		if err != nil {
			note(src.Name, err)
			continue
		}
		for k, m := range found {
			all[k] = m
		}
	}
	var list []byte
	self := fmt.Sprintf("/proc/self/fd/%d", fd) // a file is open as a path only
	n, err := unix.Listxattr(self, nil)
	if n > 0 { // else it has none, as most have
		list = make([]byte, n)
		n, err = unix.Listxattr(self, list)
	}
	if err != nil && err != unix.EOPNOTSUPP {
		note("extended attributes", err)
	}
	for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
		metric, ok := runs.FromXattr(name)
		if !ok {
			continue
		}
		value := make([]byte, 256)
		k, err := unix.Getxattr(self, name, value)
		if err == unix.ENODATA {
			continue
		}
		var m float64
		if err == nil {
			m, err = runs.ParseValue(value[:k])
		}
		if err != nil {
			note("attribute "+name, err)
			continue
		}
		all[metric] = m
	}
	if remote {
		st.remote = true
		addTold(self, all)
	}
	s.setMetrics(st, all)
}

func (s *Steps) setMetrics(st *Step, all map[string]float64) {
	st.Metrics = runs.MetricsOf(all)
	for i := range st.Metrics {
		s.shared(&st.Metrics[i].Name)
	}
}

// ErrRemote is the error of Files where a file's bytes are not here: another machine published it.
var ErrRemote = errors.New("its bytes are not here")

// addTold adds the metrics that another machine told of a step, but those that are known.
func addTold(self string, all map[string]float64) {
	b := make([]byte, record.MaxTold)
	n, err := unix.Getxattr(self, record.ToldAttr, b)
	if err != nil {
		return
	}
	t, err := record.DecodeTold(b[:n])
	if err != nil {
		return
	}
	for _, m := range t.Metrics {
		if _, known := all[m.Name]; !known && runs.CheckName(m.Name) == nil {
			all[m.Name] = m.Value
		}
	}
}

// LightningSuffix ends the names of Lightning's checkpoints, which have metrics in them.
const LightningSuffix = ".ckpt"

// hasMetrics reports whether metrics may be read from a file of a step.
func hasMetrics(rel string) bool {
	return strings.HasSuffix(rel, LightningSuffix) ||
		slices.ContainsFunc(runs.Sources, func(src runs.Source) bool { return src.Name == rel })
}

// readScores adds what Lightning's checkpoint in a step says of itself; of several, that which was written
// last.
func (s *Steps) readScores(runName string, st *Step, all map[string]float64) error {
	var last *File
	for _, f := range st.Files.All() {
		if strings.HasSuffix(path.Join(st.Name, f.Rel), LightningSuffix) &&
			(last == nil || f.Mtime > last.Mtime || f.Mtime == last.Mtime && f.Rel > last.Rel) {
			last = &f
		}
	}
	if last == nil {
		return nil
	}
	var scores map[string]float64
	var bad error
	err := s.Files.Read(path.Join(Dir, runName, st.Name, last.Rel), func(r io.ReaderAt, size int64) error {
		scores, bad = torchzip.Scores(r, size)
		return nil
	})
	if err != nil {
		return gone(err)
	}
	if errors.Is(bad, formats.ErrNotFormat) {
		return nil
	}
	for name, score := range scores {
		if runs.CheckName(name) == nil {
			all[name] = score
		}
	}
	return bad
}

// gone is no error when a file went away meanwhile, of which we hear.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
