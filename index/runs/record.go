package runs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

const magic = "CKR1"

const (
	flagComplete = 1 << iota
	flagTime
)

// ErrRecord says that bytes are no record of a step, ErrNewer that they are of a later version.
var (
	ErrRecord = errors.New("runs: damaged record")
	ErrNewer  = errors.New("runs: record of a later version")
)

var nan = math.Float64frombits(0x7ff8000000000001)

// Encode is the record of s, without its name.
func (s *Step) Encode() []byte {
	flags := byte(0)
	if s.Complete {
		flags |= flagComplete
	}
	if !s.Time.IsZero() {
		flags |= flagTime
	}
	p := append([]byte(magic), flags)
	if flags&flagTime != 0 {
		p = binary.LittleEndian.AppendUint64(p, uint64(s.Time.UnixNano()))
	}
	p = binary.AppendUvarint(p, uint64(len(s.Metrics)))
	for _, name := range slices.Sorted(maps.Keys(s.Metrics)) {
		v := s.Metrics[name]
		if math.IsNaN(v) {
			v = nan
		}
		p = append(binary.AppendUvarint(p, uint64(len(name))), name...)
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(v))
	}
	return p
}

// Decode reads what Encode wrote and nothing else. It takes at most 64 bytes of memory for each of p.
func Decode(name string, p []byte) (Step, error) {
	s := Step{Name: name}
	bad := func(what string) (Step, error) { return Step{}, fmt.Errorf("step %q: %s: %w", name, what, ErrRecord) }
	if len(p) < len(magic)+1 || string(p[:3]) != magic[:3] {
		return bad("no " + magic)
	}
	if p[3] != magic[3] {
		if p[3] > magic[3] && p[3] <= '9' {
			return Step{}, fmt.Errorf("step %q: version %c: %w", name, p[3], ErrNewer)
		}
		return bad("no " + magic)
	}
	flags := p[4]
	p = p[5:]
	if flags > flagComplete|flagTime {
		return bad("flags")
	}
	s.Complete = flags&flagComplete != 0
	if flags&flagTime != 0 {
		if len(p) < 8 {
			return bad("cut short")
		}
		s.Time = time.Unix(0, int64(binary.LittleEndian.Uint64(p)))
		p = p[8:]
	}
	number := func() (int, bool) {
		v, n := binary.Uvarint(p)
		if n <= 0 || n > 1 && p[n-1] == 0 || v > uint64(len(p)) {
			return 0, false
		}
		p = p[n:]
		return int(v), true
	}
	n, ok := number()
	if !ok || n > len(p)/10 || n > MaxMetrics {
		return bad("metrics")
	}
	if n > 0 {
		s.Metrics = make(map[string]float64, n)
	}
	last := ""
	for range n {
		k, ok := number()
		if !ok || k+8 > len(p) {
			return bad("cut short")
		}
		key := string(p[:k])
		v := math.Float64frombits(binary.LittleEndian.Uint64(p[k:]))
		p = p[k+8:]
		if CheckName(key) != nil || key <= last || v != v && math.Float64bits(v) != math.Float64bits(nan) {
			return bad("metric " + key)
		}
		s.Metrics[key] = v
		last = key
	}
	if len(p) > 0 {
		return bad("bytes after the end")
	}
	return s, nil
}
