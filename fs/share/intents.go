package share

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

// LogFile is the file of a store that has what is to be published as removed.
const LogFile = "remote.log"

const (
	logMagic = "CKI1"
	logHead  = 6 // bytes of a record before its path
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// intents are the names that programs removed, or moved away, and that are not published so yet. That a name
// is missing says nothing of it: a power cut may have taken it, or it was never here.
type intents struct {
	folder *disk.Folder

	mu    sync.Mutex
	file  *os.File
	noted []*intent // in the order in which they were noted
}

type intent struct {
	path string
	over bool // it was done
}

// openIntents reads STORE/remote.log, and makes it if there is none. What a kill or a power cut has torn off
// its end was noted for a removal that no program was told of.
func openIntents(folder *disk.Folder) (*intents, error) {
	f, err := folder.Open(LogFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	in := &intents{folder: folder, file: f}
	paths, n, err := parseIntents(p)
	if err == nil {
		for _, path := range paths {
			in.noted = append(in.noted, &intent{path, true})
		}
		err = f.Truncate(int64(n))
	}
	if err == nil && n == 0 {
		_, err = f.WriteAt([]byte(logMagic), 0)
		n = len(logMagic)
	}
	if err == nil {
		_, err = f.Seek(int64(n), io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return in, nil
}

// parseIntents reads the whole records from the begin, and says where they end.
func parseIntents(p []byte) (paths []string, n int, err error) {
	if len(p) < len(logMagic) {
		return nil, 0, nil
	}
	if string(p[:len(logMagic)]) != logMagic {
		return nil, 0, fmt.Errorf("%s: not a list of removals that this program knows; move it away, and names that were removed and not published come back", LogFile)
	}
	n = len(logMagic)
	for len(p)-n >= logHead {
		k := n + logHead + int(binary.LittleEndian.Uint16(p[n+4:]))
		if k > len(p) || crc32.Checksum(p[n+4:k], castagnoli) != binary.LittleEndian.Uint32(p[n:]) {
			break
		}
		paths, n = append(paths, string(p[n+logHead:k])), k
	}
	return paths, n, nil
}

func appendIntent(p []byte, path string) []byte {
	n := len(p)
	p = binary.LittleEndian.AppendUint16(append(p, 0, 0, 0, 0), uint16(len(path)))
	p = append(p, path...)
	binary.LittleEndian.PutUint32(p[n:], crc32.Checksum(p[n+4:], castagnoli))
	return p
}

// add notes that a name is about to be removed, or moved away, with all that is below it. done says
// whether this was done.
func (in *intents) add(path string) (done func(bool) error, err error) {
	if len(path) > record.MaxPath {
		return nothingNoted, nil // no such name is shared
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	end, err := in.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return nothingNoted, err
	}
	if _, err := in.file.Write(appendIntent(nil, path)); err != nil {
		_, serr := in.file.Seek(end, io.SeekStart)
		return nothingNoted, errors.Join(fmt.Errorf("%s: %w", LogFile, err), in.file.Truncate(end), serr)
	}
	one := &intent{path: path}
	in.noted = append(in.noted, one)
	return func(happened bool) error {
		in.mu.Lock()
		defer in.mu.Unlock()
		one.over = true
		if happened {
			return nil
		}
		return in.rewriteLocked(slices.DeleteFunc(slices.Clone(in.noted),
			func(i *intent) bool { return i == one }))
	}, nil
}

func nothingNoted(bool) error { return nil }

// sync makes durable what was noted, before the folder is in which the names were.
func (in *intents) sync() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.noted) == 0 {
		return nil
	}
	return in.file.Sync()
}

// all are the names that were noted, up to one whose removal is under way.
func (in *intents) all() (paths []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, one := range in.noted {
		if !one.over {
			break
		}
		paths = append(paths, one.path)
	}
	return paths
}

// cut forgets the first n of all, which were published, or did not happen.
func (in *intents) cut(n int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n == 0 {
		return nil
	}
	return in.rewriteLocked(slices.Clone(in.noted[n:]))
}

// rewriteLocked has the file hold these notes alone.
func (in *intents) rewriteLocked(noted []*intent) error {
	p := []byte(logMagic)
	for _, one := range noted {
		p = appendIntent(p, one.path)
	}
	const next = LogFile + ".new"
	if err := in.folder.Remove(next); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	f, err := in.folder.Open(next, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = in.folder.Rename(next, LogFile)
	}
	if err == nil {
		err = in.folder.SyncDir(".")
	}
	if err != nil {
		f.Close()
		return err
	}
	in.file.Close()
	in.file, in.noted = f, noted
	return nil
}

func (in *intents) close() error { return in.file.Close() }
