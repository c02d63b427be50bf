package recipe

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/half"
)

// Decode appends the rawLen bytes that stored, a program and its streams, makes of bases, which lie one
// behind the other. Its errors and bounds are those of codec.Codec, but for memory of up to four values.
func Decode(dst, stored, bases []byte, rawLen int) ([]byte, error) {
	return DecodeOf(dst, stored, [][]byte{bases}, rawLen)
}

// DecodeOf is Decode of bases that lie anywhere. What is long is not copied, but read where it is.
func DecodeOf(dst, stored []byte, bases [][]byte, rawLen int) ([]byte, error) {
	if rawLen < 0 || rawLen > MaxValue {
		return dst, corrupt("%d bytes", rawLen)
	}
	prog, streams, err := Parse(stored)
	if err != nil {
		return dst, err
	}
	m := machines.Get().(*machine)
	defer m.end()
	m.start(bases, rawLen)
	m.streams, m.dst = streams, dst
	for i, op := range prog {
		m.last = i == len(prog)-1
		if err := op.run(m); err != nil {
			return dst, err
		}
	}
	if len(m.streams) > 0 {
		return dst, corrupt("%d bytes behind the streams", len(m.streams))
	}
	out, err := m.result()
	if err != nil {
		return dst, err
	}
	return out, nil
}

// Encode appends what a record of raw has behind the names of its bases: a program, as Program.Append makes
// it, here with the scales that it needs behind it, and its streams. It returns dst as it was and false
// unless that takes at most the given number of bytes. What was encoded has been decoded again and compared.
func Encode(dst, program, raw, bases []byte, most int) (out []byte, ok bool) {
	prog, scales, err := Parse(program)
	if err != nil || len(raw) > MaxValue {
		return dst, false
	}
	program = program[:len(program)-len(scales)]
	m := machines.Get().(*machine)
	defer m.end()
	m.start([][]byte{bases}, len(raw))
	m.encodes, m.most = true, most-len(program)
	m.want, m.scales = raw, scales
	m.out = m.out[:0]
	for _, op := range prog {
		if op.run(m) != nil || len(m.out) > m.most {
			return dst, false
		}
	}
	n := len(dst)
	out = append(append(dst, program...), m.out...)
	if got, err := Decode(m.check[:0], out[n:], bases, len(raw)); err != nil || !bytes.Equal(got, raw) {
		return out[:n], false
	} else if cap(got) <= 2*cas.ChunkSize {
		m.check = got
	}
	return out, true
}

// machine runs a program.
type machine struct {
	bases  [][]byte
	rawLen int
	dst    []byte // what the last op appends to, if it likes
	last   bool   // the op that runs is the last one

	is      state
	typ     Type // of elements
	count   int  // elements of vector, or numbers
	vector  vector
	short   [1024]byte // of several stretches
	value   []byte
	numbers []float32 // of single precision

	streams []byte // that are still to be read

	encodes bool // streams are written
	want    []byte
	most    int
	out     []byte

	bytes   [2][]byte // what values lie in
	wides   []float32
	factors []float32 // scales
	aside   []byte
	check   []byte
	other   []byte // a stream in another encoding
	quantiser
	combiner combiner
}

// state is where a machine's value is. What was taken is neither copied nor widened before it is known what
// for.
type state byte

const (
	none     state = iota
	taken          // the vector's elements
	widening       // the same, to become single precision
	wide           // numbers
	narrower       // value
	appended       // the end of dst
)

var machines = sync.Pool{New: func() any { return new(machine) }}

func (m *machine) start(bases [][]byte, rawLen int) {
	m.bases, m.rawLen = bases, rawLen
	m.is, m.typ, m.value, m.numbers = none, 0, nil, nil
	m.streams, m.encodes, m.want = nil, false, nil
	m.aside = m.aside[:0]
}

// end has what is not the machine's own, which may be large, be collected.
func (m *machine) end() {
	m.bases, m.dst, m.streams, m.want, m.scales, m.value = nil, nil, nil, nil, nil, nil
	clear(m.vector.parts)
	m.vector.groups = nil
	machines.Put(m)
}

// isWide reports whether the value is single precision.
func (m *machine) isWide() bool { return m.is == wide || m.is == widening }

// elements has the value be bytes, if it is elements.
func (m *machine) elements() error {
	if m.is != taken {
		return nil
	}
	n := m.count * m.typ.Size()
	v, err := m.vector.append(m.room(n)[:0])
	m.is, m.value = narrower, v
	return err
}

// widened has the value be numbers, if it is single precision.
func (m *machine) widened() error {
	if m.is != widening {
		return nil
	}
	m.numbers = m.wideRoom(m.count)
	_, err := m.nextNumbers(m.numbers)
	m.is = wide
	return err
}

// nextNumbers sets x to the next of the elements that are to become single precision. Those of
// short stretches are copied together first.
func (m *machine) nextNumbers(x []float32) ([]float32, error) {
	w := m.typ.Size()
	for at := 0; at < len(x); {
		p, err := m.vector.next(len(x) - at)
		if err != nil {
			return nil, err
		}
		if len(p) < len(m.short)/4 {
			some := append(m.short[:0], p...)
			most := min(len(m.short)/w, len(x)-at)
			for len(some) < len(m.short)*3/4 && len(some)/w < most {
				if p, err = m.vector.next(most - len(some)/w); err != nil {
					return nil, err
				}
				some = append(some, p...)
			}
			p = some
		}
		widen(x[at:at+len(p)/w], p, m.typ)
		at += len(p) / w
	}
	return x, nil
}

// result appends the value at the end to dst.
func (m *machine) result() ([]byte, error) {
	if err := m.widened(); err != nil {
		return nil, err
	}
	n := len(m.value)
	switch m.is {
	case appended:
		return m.dst, nil
	case taken:
		n = m.count * m.typ.Size()
	case wide:
		n = 4 * len(m.numbers)
	}
	if n != m.rawLen {
		return nil, corrupt("%d bytes come out, want %d", n, m.rawLen)
	}
	switch m.is {
	case taken:
		return m.vector.append(m.dst)
	case wide:
		at := len(m.dst)
		out := slices.Grow(m.dst, n)[:at+n]
		narrow(out[at:], m.numbers, F32)
		return out, nil
	}
	return append(m.dst, m.value...), nil
}

// room is memory for a value of n bytes that is none of the one that there is.
func (m *machine) room(n int) []byte {
	m.bytes[0], m.bytes[1] = m.bytes[1], m.bytes[0]
	if cap(m.bytes[0]) < n {
		m.bytes[0] = make([]byte, n)
	}
	return m.bytes[0][:n]
}

// wideRoom is memory for n numbers.
func (m *machine) wideRoom(n int) []float32 {
	if cap(m.wides) < n {
		m.wides = make([]float32, n)
	}
	return m.wides[:n]
}

// read is the next stream, of at most so many bytes, in buf.
func (m *machine) read(buf []byte, most int) ([]byte, error) {
	n, k := binary.Uvarint(m.streams)
	if k <= 0 || n > uint64(most) {
		return nil, corrupt("a stream that is cut short, or too long")
	}
	m.streams = m.streams[k:]
	if n == 0 {
		return buf[:0], nil
	}
	if len(m.streams) < 2 {
		return nil, corrupt("a stream that is cut short")
	}
	id := m.streams[0]
	stored, k := binary.Uvarint(m.streams[1:])
	if k <= 0 || stored > uint64(len(m.streams)-1-k) {
		return nil, corrupt("a stream that is cut short")
	}
	p := m.streams[1+k:][:stored]
	m.streams = m.streams[1+k+int(stored):]
	if n > cas.MaxChunk {
		return nil, corrupt("a stream of %d bytes", n)
	}
	return codec.Decode(buf[:0], id, p, int(n))
}

// write adds a stream of p.
func (m *machine) write(p []byte) {
	m.out = binary.AppendUvarint(m.out, uint64(len(p)))
	if len(p) == 0 {
		return
	}
	at := len(m.out)
	id, out := codec.Encode(m.out, p, codec.Hint{DType: "F8_E4M3", Elem: 1})
	if n := len(out) - at; n > 16 && n < len(p)/32 { // nearly all is one byte: what repeats may take less
		if other, to := codec.Encode(m.other[:0], p, codec.Hint{DType: "U8", Elem: 1}); len(to) < n {
			id, out = other, append(out[:at], to...)
			m.other = to
		}
	}
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = id
	k := 1 + binary.PutUvarint(head[1:], uint64(len(out)-at))
	out = append(out, head[:k]...)
	copy(out[at+k:], out[at:len(out)-k])
	copy(out[at:], head[:k])
	m.out = out
}

func (t Take) run(m *machine) error {
	n, ok := t.Len()
	if !ok || m.is != none {
		return corrupt("a take of too much, or of what was taken")
	}
	// A recipe that is made has no further elements: what none of the bases has is better stored alone.
	var more []byte
	if m.encodes {
		m.write(nil)
	} else {
		var err error
		if more, err = m.read(m.bytes[1], cas.MaxChunk); err != nil {
			return err
		}
		if len(more) > 0 {
			more = bytes.Clone(more)
		}
	}
	m.is, m.typ, m.count = taken, t.Type, n
	m.vector.start(&t, m.bases, more)
	return nil
}

func (Widen) run(m *machine) error {
	if m.isWide() {
		return corrupt("single precision is widened")
	}
	w := m.typ.Size()
	if w == 0 || m.typ >= Bytes1 {
		return corrupt("elements of type %d are widened", m.typ)
	}
	if m.is != taken {
		m.count = len(m.value) / w
	}
	if m.count > MaxValue/4 {
		return corrupt("too many elements are widened")
	}
	if m.is == taken {
		m.is = widening
		return nil
	}
	m.numbers = m.wideRoom(m.count)
	widen(m.numbers, m.value, m.typ)
	m.is, m.value = wide, nil
	return nil
}

func (r Round) run(m *machine) error {
	if !m.isWide() {
		return corrupt("what is not single precision is rounded")
	}
	if err := m.widened(); err != nil {
		return err
	}
	out := m.room(2 * len(m.numbers))
	round(out, m.numbers, r.To)
	m.is, m.numbers, m.value = narrower, nil, out
	m.typ = BF16
	if r.To == half.F16 {
		m.typ = F16
	}
	return nil
}

// StreamSizes are what the streams of a record take as stored, one after the other; p is what lies behind the
// program.
func StreamSizes(p []byte) (sizes []int, err error) {
	for len(p) > 0 {
		n, k := binary.Uvarint(p)
		if k <= 0 || n > 0 && len(p) < k+1 {
			return nil, corrupt("a stream that is cut short")
		}
		if p = p[k:]; n == 0 {
			sizes = append(sizes, 0)
			continue
		}
		stored, k := binary.Uvarint(p[1:])
		if k <= 0 || stored > uint64(len(p)-1-k) {
			return nil, corrupt("a stream that is cut short")
		}
		sizes = append(sizes, int(stored))
		p = p[1+k+int(stored):]
	}
	return sizes, nil
}
