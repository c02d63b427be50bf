package steps

import (
	"encoding/binary"
	"encoding/json"
	"math"

	"golang.org/x/sys/unix"

	"ckptfs/cas/document"
	"ckptfs/index/ledger"
)

// Said is the encoding of what a step says of itself, which is in its files and attributes; empty where some
// of that could not be read or was not here, it is long, or the step names files that are not there.
//
//	metrics   number n, then n times, by name: string name; 8 bytes, the bits of a float64, little-endian
//	declared  string: the JSON of a ledger.Declared; "" where the step says nothing of its parents
func (st *Step) Said() []byte {
	if st.Problem != "" || st.DeclaredProblem != "" || st.remote || st.arriving {
		return nil
	}
	p := binary.AppendUvarint(nil, uint64(len(st.Metrics)))
	for _, m := range st.Metrics {
		p = append(binary.AppendUvarint(p, uint64(len(m.Name))), m.Name...)
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(m.Value))
	}
	var declared []byte
	if st.declared != nil {
		var err error
		if declared, err = json.Marshal(st.declared); err != nil {
			return nil
		}
	}
	p = append(binary.AppendUvarint(p, uint64(len(declared))), declared...)
	if len(p) > maxSaid {
		return nil
	}
	return p
}

// maxSaid bounds the bytes of Said: very many steps may each say something.
const maxSaid = 1 << 10

// recallFrom sets what a step says of itself to what Said returned. False where it says nothing of use.
func (s *Steps) recallFrom(st *Step, said []byte) bool {
	r := document.Reader{P: said, Of: "step"}
	all := make(map[string]float64)
	for range r.Count(1 + 8) {
		name := r.String()
		if value := r.Take(8); value != nil {
			all[name] = math.Float64frombits(binary.LittleEndian.Uint64(value))
		}
	}
	declared := r.String()
	if r.End() != nil {
		return false
	}
	var d ledger.Declared
	if declared != "" && json.Unmarshal([]byte(declared), &d) != nil {
		return false
	}
	st.declare(d)
	s.setMetrics(st, all)
	return true
}

// recall has a step say what one with its print said before. False where that is not known.
func (s *Steps) recall(st *Step) bool {
	said, ok := s.recalled[st.Print]
	return ok && s.recallFrom(st, said)
}

// recallLike looks at a step without listing it, if it has files of the same names as another, and was known
// as it is now; else nil. Those are all its files then: with one more, or one less, its folder had another
// ctime, and the step another print.
func (s *Steps) recallLike(like *Step, run int, of *run, runName, name string) *Step {
	if len(s.recalled) == 0 || like == nil || like.IsFile || len(like.Dirs) > 1 {
		return nil
	}
	st := &Step{of: of, Name: name}
	print := beginPrint(runName, name)
	var info unix.Stat_t
	stat := func(at string, kind uint32) bool {
		err := unix.Fstatat(run, at, &info, unix.AT_SYMLINK_NOFOLLOW)
		return err == nil && info.Mode&unix.S_IFMT == kind
	}
	if !stat(name, unix.S_IFDIR) {
		return nil
	}
	print.add("", &info)
	st.isFolder(&info)
	for _, rel := range like.Files.rels {
		if !stat(name+"/"+rel, unix.S_IFREG) {
			return nil
		}
		print.add(rel, &info)
		st.has(rel, &info, nil)
	}
	if st.Print = print.end(); !s.recall(st) {
		return nil
	}
	s.shorten(st)
	return st
}

// Recall spares the next looks to read what steps say of themselves: those with these prints said it before.
// nil: everything is read.
func (s *Steps) Recall(said map[Print][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recalled = said
}
