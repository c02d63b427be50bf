// Package removals keeps STORE/remote.log: names that programs removed, or moved away, and that are not
// published so yet. That a name is missing says nothing of it: a power cut may have taken it, or it was never
// here. So what a program removes is noted before that is done.
//
// # STORE/remote.log
//
//	"CKI1", then records:  4 CRC-32C of what follows    2 length    path
package removals

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cas/remote/record"
)

// File is the name of the file in the store.
const File = "remote.log"

const (
	magic = "CKI1"
	head  = 6 // bytes of a record before its path
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Log is what was noted. It is safe for concurrent use.
type Log struct {
	folder *disk.Folder

	mu    sync.Mutex
	file  *os.File
	noted []*note // in the order in which they were noted
}

type note struct {
	path string
	over bool // it was done
}

// Open reads STORE/remote.log, and makes it if there is none. What a kill or a power cut has torn off
// its end was noted for a removal that no program was told of.
func Open(folder *disk.Folder) (*Log, error) {
	f, err := folder.Open(File, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	l := &Log{folder: folder, file: f}
	paths, n, err := parse(p)
	if err == nil {
		for _, path := range paths {
			l.noted = append(l.noted, &note{path, true})
		}
		err = f.Truncate(int64(n))
	}
	if err == nil && n == 0 {
		_, err = f.WriteAt([]byte(magic), 0)
		n = len(magic)
	}
	if err == nil {
		_, err = f.Seek(int64(n), io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// parse reads the whole records from the begin, and says where they end.
func parse(p []byte) (paths []string, n int, err error) {
	if len(p) < len(magic) {
		return nil, 0, nil
	}
	if string(p[:len(magic)]) != magic {
		return nil, 0, fmt.Errorf("%s: not a list of removals that this program knows; move it away, and names that were removed and not published come back", File)
	}
	n = len(magic)
	for len(p)-n >= head {
		k := n + head + int(binary.LittleEndian.Uint16(p[n+4:]))
		if k > len(p) || crc32.Checksum(p[n+4:k], castagnoli) != binary.LittleEndian.Uint32(p[n:]) {
			break
		}
		paths, n = append(paths, string(p[n+head:k])), k
	}
	return paths, n, nil
}

func appendNote(p []byte, path string) []byte {
	n := len(p)
	p = binary.LittleEndian.AppendUint16(append(p, 0, 0, 0, 0), uint16(len(path)))
	p = append(p, path...)
	binary.LittleEndian.PutUint32(p[n:], crc32.Checksum(p[n+4:], castagnoli))
	return p
}

// Add notes that a name is about to be removed, or moved away, with all that is below it. done says
// whether this was done.
func (l *Log) Add(path string) (done func(bool) error, err error) {
	if len(path) > record.MaxPath {
		return Nothing, nil // no such name is shared
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	end, err := l.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return Nothing, err
	}
	if _, err := l.file.Write(appendNote(nil, path)); err != nil {
		_, serr := l.file.Seek(end, io.SeekStart)
		return Nothing, errors.Join(fmt.Errorf("%s: %w", File, err), l.file.Truncate(end), serr)
	}
	one := &note{path: path}
	l.noted = append(l.noted, one)
	return func(happened bool) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		one.over = true
		if happened {
			return nil
		}
		return l.rewriteLocked(slices.DeleteFunc(slices.Clone(l.noted),
			func(i *note) bool { return i == one }))
	}, nil
}

// Nothing ends a removal of which nothing was noted.
func Nothing(bool) error { return nil }

// Sync makes durable what was noted, before the folder is in which the names were.
func (l *Log) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.noted) == 0 {
		return nil
	}
	return l.file.Sync()
}

// All are the names that were noted, up to one whose removal is under way.
func (l *Log) All() (paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.noted {
		if !one.over {
			break
		}
		paths = append(paths, one.path)
	}
	return paths
}

// Cut forgets the first n of all, which were published, or did not happen.
func (l *Log) Cut(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == 0 {
		return nil
	}
	return l.rewriteLocked(slices.Clone(l.noted[n:]))
}

// rewriteLocked has the file hold these notes alone.
func (l *Log) rewriteLocked(noted []*note) error {
	p := []byte(magic)
	for _, one := range noted {
		p = appendNote(p, one.path)
	}
	const next = File + ".new"
	if err := l.folder.Remove(next); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	f, err := l.folder.Open(next, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.folder.Rename(next, File)
	}
	if err == nil {
		err = l.folder.SyncDir(".")
	}
	if err != nil {
		f.Close()
		return err
	}
	l.file.Close()
	l.file, l.noted = f, noted
	return nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }
