package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"ckptfs/integration/daemon"

	"golang.org/x/sys/unix"
)

const (
	smallFiles = 2000
	smallBytes = 4096
)

// smallSteps are what is done to each of smallFiles files, one after the other by one process.
var smallSteps = []struct {
	name string
	run  func(path string, data []byte) error
}{
	{"create, write 4 KiB, close", func(path string, data []byte) error { return os.WriteFile(path, data, 0o644) }},
	{"stat", func(path string, _ []byte) error {
		_, err := os.Lstat(path)
		return err
	}},
	{"open, read, close", func(path string, data []byte) error {
		got, err := os.ReadFile(path)
		if err == nil && len(got) != len(data) {
			err = fmt.Errorf("%s: %d bytes", path, len(got))
		}
		return err
	}},
	{"write over by rename", func(path string, data []byte) error {
		return errors.Join(os.WriteFile(path+".tmp", data, 0o644), os.Rename(path+".tmp", path))
	}},
	{"unlink", func(path string, _ []byte) error { return os.Remove(path) }},
}

// small tells how many small files a second can be made, looked at, read and removed: on the mount, on a
// plain go-fuse loopback, and on the filesystem below both.
func (b *bench) small() error {
	stop, loop, err := b.loopback()
	if err != nil {
		return err
	}
	defer stop()
	sides := []struct{ name, dir string }{{"plain", b.plain}, {"loopback", loop}, {"ckptfs", b.daemon.Dir}}
	data := make([]byte, smallBytes)
	rates := make([][]sample, len(sides))
	for i := range rates {
		rates[i] = make([]sample, len(smallSteps)+1)
	}
	for round := range b.rounds {
		for k := range sides {
			i := (k + round) % len(sides)
			dir := filepath.Join(sides[i].dir, fmt.Sprintf("small-%d", round))
			if err := errors.Join(b.settle(), os.Mkdir(dir, 0o755)); err != nil {
				return err
			}
			for j, step := range smallSteps {
				start := time.Now()
				for n := range smallFiles {
					if err := step.run(filepath.Join(dir, fmt.Sprintf("f%05d", n)), data); err != nil {
						return err
					}
				}
				rates[i][j].add(smallFiles / time.Since(start).Seconds())
				if step.name != "unlink" {
					continue
				}
				// Durable ones, fewer of them.
				const few = smallFiles / 20
				start = time.Now()
				for n := range few {
					if err := writeSynced(filepath.Join(dir, fmt.Sprintf("s%05d", n)), data); err != nil {
						return err
					}
				}
				rates[i][len(smallSteps)].add(few / time.Since(start).Seconds())
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	var rows [][]string
	for j := range len(smallSteps) + 1 {
		name := "create, write 4 KiB, fsync, close"
		if j < len(smallSteps) {
			name = smallSteps[j].name
		}
		row := []string{name}
		for i := range sides {
			row = append(row, rates[i][j].text())
		}
		vs := func(i int) string { p := pair{plain: rates[i][j], ours: rates[2][j]}; return p.ratio() }
		rows = append(rows, append(row, vs(1), vs(0)))
	}
	table(fmt.Sprintf("small files, operations a second, %d files of %d bytes", smallFiles, smallBytes),
		[]string{"", "plain", "loopback", "ckptfs", "to loopback", "to plain"}, rows)
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// loopback builds and mounts go-fuse's loopback over a folder beside the plain one.
func (b *bench) loopback() (stop func(), dir string, err error) {
	bin, below, dir := filepath.Join(b.dir, "loopback"), filepath.Join(b.dir, "below"),
		filepath.Join(b.dir, "loop")
	build := exec.Command("go", "build", "-o", bin, "ckptfs/integration/bench/loopback")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("building the loopback: %w\n%s", err, out)
	}
	if err := errors.Join(os.Mkdir(below, 0o755), os.Mkdir(dir, 0o755)); err != nil {
		return nil, "", err
	}
	cmd := exec.Command(bin, below, dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	err = daemon.Until("the loopback's mount", func() bool {
		var st unix.Statfs_t
		return unix.Statfs(dir, &st) == nil && st.Type == 0x65735546
	})
	if err != nil {
		stop()
		return nil, "", err
	}
	return stop, dir, nil
}
