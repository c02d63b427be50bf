package steps

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"ckptfs/cas/document"
	"ckptfs/index/ledger"
)

// Said is the encoding of what a step says of itself, which is in its files and attributes; empty where some
// of that could not be read or was not here, or it is long.
//
//	metrics   number n, then n times, by name: string name; 8 bytes, the bits of a float64, little-endian
//	declared  string: the JSON of a ledger.Declared; "" where the step says nothing of its parents
func (st *Step) Said() []byte {
	if st.Problem != "" || st.DeclaredProblem != "" || st.remote {
		return nil
	}
	p := binary.AppendUvarint(nil, uint64(len(st.Metrics)))
	for _, name := range slices.Sorted(maps.Keys(st.Metrics)) {
		p = append(binary.AppendUvarint(p, uint64(len(name))), name...)
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(st.Metrics[name]))
	}
	var declared []byte
	if d := &st.Declared; !d.IsZero() || d.Transfer || d.Tensors != nil || d.Tied != nil {
		var err error
		if declared, err = json.Marshal(d); err != nil {
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

// recall sets what a step says of itself to what Said returned. False where it says nothing of use.
func (st *Step) recall(said []byte) bool {
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
	st.Declared = d
	if len(all) > 0 {
		st.Metrics = all
	}
	return true
}

// Recall spares the next looks to read what steps say of themselves: those with these prints said it before.
// nil: everything is read.
func (s *Steps) Recall(said map[Print][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recalled = said
}
