package steps

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

// Print identifies a step by its place, and by its directories and files: their names, inodes, sizes and the
// times of their last change (ctime). A step that has the print of an earlier look is as it was then, whoever
// could have changed it. The zero Print is no step's: something changed so shortly before the look that a
// change behind it could have the same time.
type Print [16]byte

// Compare orders prints.
func (p Print) Compare(q Print) int { return bytes.Compare(p[:], q[:]) }

// Recorded notes that a file has another record: so it has another ctime, and is what it was.
func (s *Steps) Recorded(ino uint64) {
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range w.withLocked(ino) {
		w.prints[st] = Print{}
	}
}

// sinceRecorded is how long nothing of a step may have changed for a print that is taken behind its look. It
// is far longer than a change can be on the disk of which Changed is not told yet.
const sinceRecorded = 10 * time.Second

// Prints are those of steps, by "run/step", that were looked at, with what each says of itself (Step.Said).
// Of a step of which files were recorded since it is taken again, if nothing but the ctimes is other than it
// was, and no change is known that was not looked at.
func (s *Steps) Prints(of map[string]*Step) map[Print][]byte { return s.prints(of, sinceRecorded) }

func (s *Steps) prints(of map[string]*Step, still time.Duration) map[Print][]byte {
	all := make(map[Print][]byte, len(of))
	w := &s.watch
	for at, st := range of {
		w.mu.Lock()
		print, recorded := w.prints[st]
		w.mu.Unlock()
		if !recorded {
			print = st.Print
		} else if print == (Print{}) {
			print = s.printAgain(at, st, still)
			w.mu.Lock()
			if w.changedLocked(st) {
				print = Print{}
			}
			if w.prints[st] == (Print{}) && st.of.steps[st.Name] == st {
				w.prints[st] = print
			}
			w.mu.Unlock()
		}
		all[print] = st.Said()
	}
	delete(all, Print{})
	return all
}

// printAgain is the print of a step now; zero if anything but a ctime is another, or was so short a time ago.
func (s *Steps) printAgain(at string, st *Step, still time.Duration) Print {
	runName, _, _ := strings.Cut(at, "/")
	print := beginPrint(runName, st.Name)
	print.began -= int64(still)
	now := &Step{Name: st.Name, IsFile: st.IsFile}
	dir := s.root
	for _, name := range []string{Dir, runName} {
		fd, err := openDirAt(dir, name)
		if err != nil {
			return Print{}
		}
		defer unix.Close(fd)
		dir = fd
	}
	fd, err := now.open(dir)
	if err != nil {
		return Print{}
	}
	defer unix.Close(fd)
	if now.list(fd, &print) != nil || !slices.Equal(now.Dirs, st.Dirs) || !now.Files.equal(&st.Files) {
		return Print{}
	}
	return print.end()
}

// printing is the print of a step that is being looked at.
type printing struct {
	began int64 // by the clock of the ctimes, before anything was looked at
	late  bool
	text  []byte
}

// usualPrint has room for what is printed of a step of few files.
const usualPrint = 512

func beginPrint(runName, name string) (p printing) {
	p.text = make([]byte, 0, usualPrint)
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) == nil {
		p.began = now.Nano()
	}
	p.addName(runName)
	p.addName(name)
	return p
}

func (p *printing) addName(name string) {
	p.text = append(binary.AppendUvarint(p.text, uint64(len(name))), name...)
}

// add adds a file or a directory of the step.
func (p *printing) add(rel string, st *unix.Stat_t) {
	at, tick := st.Ctim.Nano(), int64(1)
	if at%1e9 == 0 { // a filesystem of whole seconds
		tick = 1e9
	}
	p.late = p.late || at+tick > p.began
	p.addName(rel)
	for _, n := range []uint64{st.Ino, uint64(st.Size), uint64(at)} {
		p.text = binary.LittleEndian.AppendUint64(p.text, n)
	}
}

func (p *printing) end() (print Print) {
	if !p.late {
		h := cas.Sum(p.text)
		copy(print[:], h[:])
	}
	return print
}
