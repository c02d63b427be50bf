package tree

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// Version is the version of the store's formats that this program writes, and the only one that it reads: no
// release wrote an earlier one.
const Version = 4

// ErrNotStore: the folder is no ckptfs store.
var ErrNotStore = errors.New("not a ckptfs store")

// ErrOlder: a program before the first release wrote the store.
var ErrOlder = fmt.Errorf("this program reads format %d only: copy the files out with the program that wrote them", Version)

// Format is the content of the file `format`: lines of a key, a space and a value.
//
//	ckptfs 4
//	id 6f0c…  (32 hex characters)
//	created 2026-11-21T12:00:00Z
//	sum 1c291ca3  (CRC-32C of all before this line, 8 hex characters)
//
// The sum comes last. Stores that earlier programs made have none, and a user who mends the file by hand may
// leave it out. Lines with other keys are passed over.
type Format struct {
	Version int
	ID      [16]byte
	Created time.Time
}

func (f *Format) encode() []byte {
	b := fmt.Appendf(nil, "ckptfs %d\nid %s\ncreated %s\n", f.Version, hex.EncodeToString(f.ID[:]),
		f.Created.UTC().Format(time.RFC3339))
	return append(b, sumLine(b)...)
}

func sumLine(before []byte) []byte {
	return fmt.Appendf(nil, "sum %08x\n", crc32.Checksum(before, castagnoli))
}

func parseFormat(b []byte) (*Format, error) {
	f := &Format{}
	var damaged error
	doubt := ""
	if i := bytes.LastIndex(b, []byte("\nsum ")) + 1; i > 0 && !bytes.Equal(b[i:], sumLine(b[:i])) {
		damaged = fmt.Errorf("its checksum is not that of its lines: restore it from a copy of the store, or mend it "+
			"(the id stands in every segment's header, and the line %q may be left out): %w", bytes.TrimSpace(b[i:]), cas.ErrCorrupt)
		doubt = " (or the file is damaged: its checksum does not fit)"
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch key {
		case "ckptfs":
			f.Version, err = strconv.Atoi(value)
			if err == nil && f.Version > Version {
				return nil, fmt.Errorf("store format %d, this program reads up to %d%s: %w", f.Version, Version, doubt, cas.ErrNewer)
			}
			if err == nil && f.Version > 0 && f.Version < Version {
				return nil, fmt.Errorf("store format %d: %w", f.Version, ErrOlder)
			}
		case "id":
			if len(value) != 2*len(f.ID) {
				err = errors.New("not 32 characters")
			} else {
				_, err = hex.Decode(f.ID[:], []byte(value))
			}
		case "created":
			f.Created, err = time.Parse(time.RFC3339, value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", strings.TrimSpace(line), cas.ErrCorrupt)
		}
	}
	if damaged != nil {
		return nil, damaged
	}
	if f.Version < 1 || f.ID == [16]byte{} {
		return nil, fmt.Errorf("no version or id in it: %w", cas.ErrCorrupt)
	}
	return f, nil
}

// ReadFormat reads and checks STORE/format. ErrNotStore when there is none; cas.ErrNewer when a newer program
// wrote it, ErrOlder when an older one did.
func ReadFormat(d *disk.Folder) (*Format, error) {
	b, err := readBounded(d, FormatFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w (no file %q in it)", d.Path(), ErrNotStore, FormatFile)
	}
	if err != nil {
		return nil, err
	}
	f, err := parseFormat(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Join(FormatFile), err)
	}
	return f, nil
}

// readBounded reads a file of a few lines.
func readBounded(d *disk.Folder, name string) ([]byte, error) {
	const most = 64 << 10
	f, err := d.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s: over %d bytes: %w", d.Join(name), most, cas.ErrCorrupt)
	}
	return b, err
}

// create makes a store in d, which is empty or holds what an interrupted create left. The file `format` comes
// last: a folder with it is a whole store.
func create(d *disk.Folder, now time.Time) error {
	if err := refuseOthers(d); err != nil {
		return err
	}
	if err := CheckAttributes(d); err != nil {
		return err
	}
	for _, sub := range []string{TreeDir, SegmentsDir, LostFound} {
		mode := fs.FileMode(0o700)
		if sub == TreeDir {
			mode = 0o755 // the mount's root: its mode is the user's to see and change
		}
		if err := d.Mkdir(sub, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	f := Format{Version: Version, Created: now}
	if _, err := rand.Read(f.ID[:]); err != nil {
		return err
	}
	return WriteSynced(d, FormatFile, f.encode())
}

// unbegun is a journal of package inplace that was not written whole: nothing has moved.
const unbegun = "moving.new"

// Unmake removes what the making of a store left in its folder. It removes nothing where there is more: a
// file, or what opening the store, or a move into it, makes.
func Unmake(d *disk.Folder) error {
	names, err := d.ReadDir(".")
	if err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case TreeDir, SegmentsDir, LostFound:
			if in, err := d.ReadDir(name); err != nil || len(in) > 0 {
				return errors.Join(err, unix.ENOTEMPTY)
			}
		case FormatFile, FormatFile + ".new", unbegun:
		default:
			return unix.ENOTEMPTY
		}
	}
	for _, name := range []string{FormatFile, FormatFile + ".new", unbegun, TreeDir, SegmentsDir, LostFound} {
		if rerr := d.Remove(name); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// refuseOthers keeps create from turning a folder with other files into a store.
func refuseOthers(d *disk.Folder) error {
	names, err := d.ReadDir(".")
	if err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case TreeDir, SegmentsDir, LostFound:
			if holdsNoFiles(d, name) {
				continue
			}
		case FormatFile + ".new", LogFile, LockFile:
			continue
		}
		return fmt.Errorf("%s: %w, and not empty (%q is in it): give an empty or a new folder", d.Path(), ErrNotStore, name)
	}
	return nil
}

// holdsNoFiles reports whether there are at most folders in a folder, as an interrupted create leaves them.
func holdsNoFiles(d *disk.Folder, name string) bool {
	none := true
	err := d.Walk(name, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			none = false
			return fs.SkipAll
		}
		return err
	})
	return err == nil && none
}

// WriteSynced replaces a file of the store's own by one that is durable before it has its name.
func WriteSynced(d *disk.Folder, name string, data []byte) error {
	tmp := name + ".new"
	f, err := NewFile(d, tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.Rename(tmp, name)
	}
	if err == nil {
		err = d.SyncDir(".")
	}
	return err
}
