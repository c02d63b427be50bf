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

// intents are the names that programs removed, or moved away, and that are not published so yet. That a name is
// missing says nothing of it: a power cut may have taken it, or it was never here.
type intents struct {
	folder *disk.Folder

	mu    sync.Mutex
	file  *os.File
	paths []string // in the order in which they were noted
}

// openIntents reads STORE/remote.log, and makes it if there is none. What a kill or a power cut has torn off its
// end was noted for a removal that no program was told of.
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
		in.paths, err = paths, f.Truncate(int64(n))
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

// add notes that a name is about to be removed, or moved away, with all that is below it.
func (in *intents) add(path string) error {
	if len(path) > record.MaxPath {
		return nil // no such name is shared
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	end, err := in.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := in.file.Write(appendIntent(nil, path)); err != nil {
		_, serr := in.file.Seek(end, io.SeekStart)
		return errors.Join(fmt.Errorf("%s: %w", LogFile, err), in.file.Truncate(end), serr)
	}
	in.paths = append(in.paths, path)
	return nil
}

// sync makes durable what was noted, before the folder is in which the names were.
func (in *intents) sync() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.paths) == 0 {
		return nil
	}
	return in.file.Sync()
}

// all are the names that were noted.
func (in *intents) all() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.paths)
}

// cut forgets the first n of all, which were published, or did not happen.
func (in *intents) cut(n int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n == 0 {
		return nil
	}
	p := []byte(logMagic)
	for _, path := range in.paths[n:] {
		p = appendIntent(p, path)
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
	if err != nil {
		f.Close()
		return err
	}
	in.file.Close()
	in.file, in.paths = f, slices.Clone(in.paths[n:])
	return nil
}

func (in *intents) close() error { return in.file.Close() }
