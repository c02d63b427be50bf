package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// step runs one opcode other than STOP.
func (m *machine) step(op byte) error {
	switch op {
	case opProto:
		v, err := m.byte()
		if err == nil && v > 5 {
			err = syntax("protocol %d", v)
		}
		return err
	case opFrame:
		n, err := m.number(8)
		if err == nil && n > uint64(m.left()) {
			err = ErrShort
		}
		return err
	case opMark:
		if len(m.marks) >= m.lim.Marks {
			return limit("marks", m.lim.Marks)
		}
		m.marks = append(m.marks, len(m.stack))
		return nil

	case opPop:
		// Python pops a mark when one is on top.
		if len(m.marks) > 0 && m.fence() == len(m.stack) {
			m.marks = m.marks[:len(m.marks)-1]
			return nil
		}
		_, err := m.pop()
		return err
	case opPopMark:
		_, err := m.popMark()
		return err
	case opDup:
		ref, err := m.top()
		if err != nil {
			return err
		}
		return m.push(ref)

	case opNone:
		return m.push(refNone)
	case opNewTrue:
		return m.push(refTrue)
	case opNewFalse:
		return m.push(refFalse)
	case opInt, opLong, opFloat, opBinInt, opBinInt1, opBinInt2, opLong1, opLong4, opBinFloat:
		return m.stepNumber(op)
	case opString, opUnicode, opBinString, opShortBinString, opBinUnicode, opShortBinUnicode, opBinUnicode8,
		opBinBytes,
		opShortBinBytes, opBinBytes8, opByteArray8:
		return m.stepText(op)

	case opEmptyList:
		return m.pushNode(node{kind: List})
	case opEmptyDict:
		return m.pushNode(node{kind: Dict})
	case opEmptySet:
		return m.pushNode(node{kind: Set})
	case opEmptyTuple:
		return m.push(refEmptyTuple)
	case opTuple, opList, opFrozenSet, opDict, opTuple1, opTuple2, opTuple3:
		return m.stepCollect(op)
	case opAppend:
		ref, err := m.pop()
		if err != nil {
			return err
		}
		return m.extend(List, []uint32{ref})
	case opAppends, opAddItems:
		items, err := m.popMark()
		if err != nil {
			return err
		}
		if op == opAddItems {
			return m.extend(Set, items)
		}
		return m.extend(List, items)
	case opSetItem:
		items, err := m.popN(2)
		if err != nil {
			return err
		}
		return m.setItems(items)
	case opSetItems:
		items, err := m.popMark()
		if err != nil {
			return err
		}
		return m.setItems(items)

	case opPut, opBinPut, opLongBinPut, opMemoize, opGet, opBinGet, opLongBinGet:
		return m.stepMemo(op)

	case opGlobal, opStackGlobal, opReduce, opNewObj, opNewObjEx, opInst, opObj, opBuild, opPersID,
		opBinPersID, opExt1,
		opExt2, opExt4, opNextBuffer, opReadonlyBuffer:
		return m.stepObject(op)
	}
	return syntax("unknown opcode 0x%02x", op)
}

// popN removes the last n values. The result is valid until the next push.
func (m *machine) popN(n int) ([]uint32, error) {
	h := len(m.stack) - n
	if h < m.fence() {
		return nil, syntax("stack underflow")
	}
	items := m.stack[h:]
	m.stack = m.stack[:h]
	return items, nil
}

func (m *machine) stepCollect(op byte) error {
	var items []uint32
	var err error
	switch op {
	case opTuple1, opTuple2, opTuple3:
		items, err = m.popN(int(op-opTuple1) + 1)
	default:
		items, err = m.popMark()
	}
	if err != nil {
		return err
	}
	switch op {
	case opList:
		return m.pushSeq(List, items)
	case opFrozenSet:
		return m.pushSeq(FrozenSet, items)
	case opDict:
		if len(items)%2 != 0 {
			return syntax("a key without a value")
		}
		return m.pushSeq(Dict, items)
	}
	return m.pushSeq(Tuple, items)
}

func (m *machine) stepNumber(op byte) error {
	switch op {
	case opBinInt1, opBinInt2:
		v, err := m.number(int(op-opBinInt1)/2 + 1) // 'K' is one byte, 'M' two
		if err != nil {
			return err
		}
		return m.pushInt(int64(v))
	case opBinInt:
		v, err := m.number(4)
		if err != nil {
			return err
		}
		return m.pushInt(int64(int32(v)))
	case opBinFloat:
		p, err := m.take(8)
		if err != nil {
			return err
		}
		return m.pushNode(node{kind: Float, a: binary.BigEndian.Uint64(p)})
	case opLong1, opLong4:
		width := 1
		if op == opLong4 {
			width = 4
		}
		s, err := m.counted(width)
		if err != nil {
			return err
		}
		p := m.text(s)
		if len(p) > 8 {
			return m.pushNode(node{kind: Opaque, a: uint64(s)})
		}
		return m.pushInt(twosComplement(p))
	}
	s, err := m.line()
	if err != nil {
		return err
	}
	p := m.text(s)
	if op == opFloat {
		f, err := strconv.ParseFloat(string(p[:min(len(p), 64)]), 64)
		if err != nil || len(p) > 64 {
			return syntax("float in text")
		}
		return m.pushNode(node{kind: Float, a: math.Float64bits(f)})
	}
	switch {
	case op == opInt && string(p) == "00":
		return m.push(refFalse)
	case op == opInt && string(p) == "01":
		return m.push(refTrue)
	}
	if op == opLong {
		p = bytes.TrimSuffix(p, []byte("L"))
	}
	if len(p) > 20 {
		return m.pushNode(node{kind: Opaque, a: uint64(s)})
	}
	v, err := strconv.ParseInt(string(p), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return m.pushNode(node{kind: Opaque, a: uint64(s)})
	case err != nil:
		return syntax("integer in text")
	}
	return m.pushInt(v)
}

// twosComplement is the little-endian signed number in p, at most 8 bytes; none is zero.
func twosComplement(p []byte) int64 {
	var v uint64
	for i, b := range p {
		v |= uint64(b) << (8 * i)
	}
	if n := 8 * len(p); n > 0 && n < 64 && v>>(n-1) == 1 {
		v |= ^uint64(0) << n
	}
	return int64(v)
}

func (m *machine) stepText(op byte) error {
	kind, width := Text, 0
	switch op {
	case opString, opUnicode:
		s, err := m.line()
		if err != nil {
			return err
		}
		p := m.text(s)
		if op == opString {
			if len(p) < 2 || p[0] != p[len(p)-1] || (p[0] != '\'' && p[0] != '"') {
				return syntax("string without quotes")
			}
			s += 1<<32 - 2
		}
		for _, b := range p {
			if b == '\\' || b >= 0x80 { // escapes, and Latin-1 in the unicode form
				kind = Opaque
			}
		}
		return m.pushNode(node{kind: kind, a: uint64(s)})
	case opShortBinString, opShortBinUnicode:
		width = 1
	case opBinString, opBinUnicode:
		width = 4
	case opBinUnicode8:
		width = 8
	case opShortBinBytes:
		kind, width = Bytes, 1
	case opBinBytes:
		kind, width = Bytes, 4
	case opBinBytes8, opByteArray8:
		kind, width = Bytes, 8
	}
	if kind == Bytes && m.in != nil {
		return m.pushBytes(width)
	}
	s, err := m.counted(width)
	if err != nil {
		return err
	}
	return m.pushNode(node{kind: kind, a: uint64(s)})
}

func (m *machine) stepMemo(op byte) error {
	var key uint64
	var err error
	switch op {
	case opMemoize:
		key = uint64(m.puts)
	case opBinPut, opBinGet:
		key, err = m.number(1)
	case opLongBinPut, opLongBinGet:
		key, err = m.number(4)
	default:
		var s span
		if s, err = m.line(); err == nil {
			p := m.text(s)
			if key, err = strconv.ParseUint(string(p[:min(len(p), 32)]), 10, 64); err != nil {
				err = syntax("memo key in text")
			}
		}
	}
	if err != nil {
		return err
	}
	switch op {
	case opGet, opBinGet, opLongBinGet:
		return m.get(key)
	}
	return m.put(key)
}
