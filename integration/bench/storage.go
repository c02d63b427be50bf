package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// storage saves series of checkpoints with real libraries and tells what they take: as files, in DVC's cache,
// in a restic repository, in ZipLLM's scheme (the peers of scripts/setup-peers have to be in PYTHONPATH), and
// in the store.
func (b *bench) storage() error {
	rows, err := b.scenarios("storage.py", func(name string, add func([]string)) error {
		row, err := b.stored(name)
		if err == nil {
			add(row)
		}
		return err
	})
	if err != nil {
		return err
	}
	table("series of checkpoints: MB stored; seconds a save (of DVC and restic: of adding it), median (lowest–highest)",
		[]string{"", "saves", "files", "DVC", "restic", "ZipLLM's scheme", "ckptfs", "a save, files",
			"ckptfs", "ratio", "DVC", "restic", "packing a save",
			"the last save read, cold, GB/s: file", "packed", "ratio"}, rows)
	return nil
}

// stored is the row of one scenario. Each side has a folder of its own, and the store is a new one.
func (b *bench) stored(name string) ([]string, error) {
	dir, err := os.MkdirTemp(b.dir, "series-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	plain := filepath.Join(dir, "plain")
	if err := os.Mkdir(plain, 0o755); err != nil {
		return nil, err
	}
	files, err := b.series(name, plain)
	if err != nil {
		return nil, err
	}
	logical, err := diskUsage(plain)
	if err != nil {
		return nil, err
	}
	saves := len(files)
	dvcBytes, dvcTime, err := b.dvc(plain)
	if err != nil {
		return nil, err
	}
	resticBytes, resticTime, err := restic(dir, plain)
	if err != nil {
		return nil, err
	}
	zipllm := "–" // knows no other files than tensors'
	if pt, err := filepath.Glob(filepath.Join(plain, "runs", "*", "*", "*.pt")); err == nil && len(pt) > 0 {
		out, err := b.pythonRun("zipllm.py", filepath.Join(plain, "runs"))
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		if err != nil {
			return nil, err
		}
		zipllm = digits(n / 1e6)
	}
	if err := os.RemoveAll(plain); err != nil {
		return nil, err
	}

	fresh, err := b.fresh(dir)
	if err != nil {
		return nil, err
	}
	own := fresh.daemon
	defer own.Clean()
	mounted, err := fresh.series(name, own.Dir)
	if err != nil {
		return nil, err
	}
	if err := fresh.sync(); err != nil {
		return nil, err
	}
	cpu := fresh.cpu()
	segments, err := diskUsage(filepath.Join(own.Store, "segments"))
	if err != nil {
		return nil, err
	}
	read, err := fresh.lastRead(dir)
	if err != nil {
		return nil, err
	}
	var ratio sample
	for i := range min(len(files), len(mounted)) {
		ratio.add(mounted[i] / files[i])
	}
	mb := func(n int64) string { return digits(float64(n) / 1e6) }
	each := func(d time.Duration) string { return digits(d.Seconds() / float64(saves)) }
	return []string{name, fmt.Sprint(saves), mb(logical), mb(dvcBytes), mb(resticBytes), zipllm, mb(segments),
		files.text(), mounted.text(),
		fmt.Sprintf("%.2fx", ratio.median()), each(dvcTime), each(resticTime), each(cpu),
		read.plain.text(), read.ours.text(), read.ratio()}, nil
}

// lastRead reads the file that was saved last, packed and cold, beside a copy of it in dir. Of small ones
// there are no figures.
func (b *bench) lastRead(dir string) (figure pair, err error) {
	var last string
	var newest os.FileInfo
	err = filepath.WalkDir(filepath.Join(b.daemon.Dir, "runs"), func(path string, d fs.DirEntry,
		err error) error {
		// a view of another file
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, ".safetensors") {
			return err
		}
		info, err := d.Info()
		if err == nil && (newest == nil || info.ModTime().After(newest.ModTime())) {
			last, newest = path, info
		}
		return err
	})
	if err != nil || newest == nil || newest.Size() < 16<<20 {
		return pair{}, err
	}
	p, err := os.ReadFile(last)
	if err != nil {
		return pair{}, err
	}
	plain := filepath.Join(dir, "last")
	if _, err := writeFile(plain, p); err != nil {
		return pair{}, err
	}
	if _, err := b.daemon.CLI("evict", last); err != nil {
		return pair{}, err
	}
	return b.pairs(readSequential, plain, cool, last,
		func(b *bench, _ string) error { return b.coolPacked() })
}

// series lets the program save, and returns the seconds that each save took.
func (b *bench) series(name, dir string) (sample, error) {
	out, err := b.pythonRun("storage.py", name, dir)
	if err != nil {
		return nil, err
	}
	var all sample
	for line := range strings.Lines(out) {
		var s struct{ Seconds float64 }
		if json.Unmarshal([]byte(line), &s) == nil {
			all.add(s.Seconds)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("it saved nothing")
	}
	return all, nil
}

// dvc adds a folder to a new DVC project in it and returns what the cache takes.
func (b *bench) dvc(dir string) (int64, time.Duration, error) {
	run := func(args ...string) error {
		cmd := exec.Command(b.python, append([]string{"-m", "dvc", "-q"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "DVC_NO_ANALYTICS=1", "DVC_SITE_CACHE_DIR="+filepath.Join(dir, ".dvc-site"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("dvc %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	if err := run("init", "--no-scm"); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	// The files are links to the cache then, as with any of DVC's links; the cache is what is counted.
	if err := errors.Join(run("config", "cache.type", "hardlink"), run("add", "runs")); err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	n, err := diskUsage(filepath.Join(dir, ".dvc", "cache"))
	return n, took, err
}

// restic backs a folder up into a new repository and returns what that takes.
func restic(dir, from string) (int64, time.Duration, error) {
	repository := filepath.Join(dir, "restic")
	run := func(args ...string) error {
		cmd := exec.Command("restic", append([]string{"-q", "--no-cache", "-r", repository}, args...)...)
		cmd.Env = append(os.Environ(), "RESTIC_PASSWORD=bench")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("restic %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	if err := run("init"); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := run("backup", "--compression", "max", filepath.Join(from, "runs")); err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	n, err := diskUsage(repository)
	return n, took, err
}

// diskUsage is what the files below dir take on the disk, in bytes, each inode once.
func diskUsage(dir string) (n int64, err error) {
	seen := map[uint64]bool{}
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if !seen[st.Ino] {
			seen[st.Ino] = true
			n += st.Blocks * 512
		}
		return nil
	})
	return n, err
}
