package pickle

// stepObject runs the opcodes with which Python would import, call or construct.
func (m *machine) stepObject(op byte) error {
	switch op {
	case opGlobal:
		ref, err := m.global()
		if err != nil {
			return err
		}
		return m.push(ref)
	case opStackGlobal:
		items, err := m.popN(2)
		if err != nil {
			return err
		}
		mod, name := m.node(items[0]), m.node(items[1])
		if mod.kind != Text || name.kind != Text {
			return syntax("global named by a %v and a %v", mod.kind, name.kind)
		}
		return m.pushNode(node{kind: Global, a: mod.a, b: name.a})

	case opReduce, opNewObj:
		items, err := m.popN(2)
		if err != nil {
			return err
		}
		return m.pushCall(op == opNewObj, items[0], items[1])
	case opNewObjEx: // class, arguments, keyword arguments
		items, err := m.popN(3)
		if err != nil {
			return err
		}
		cls := items[0]
		args, err := m.add(node{kind: Tuple, items: []uint32{items[1], items[2]}})
		if err != nil {
			return err
		}
		return m.pushCall(true, cls, args)
	case opInst: // mark, arguments; the class is in the opcode
		cls, err := m.global()
		if err != nil {
			return err
		}
		items, err := m.popMark()
		if err != nil {
			return err
		}
		return m.pushCallOf(cls, items)
	case opObj: // mark, class, arguments
		items, err := m.popMark()
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return syntax("stack underflow")
		}
		return m.pushCallOf(items[0], items[1:])
	case opBuild:
		if err := m.build(); err != nil {
			return err
		}
		return m.built()

	case opPersID:
		s, err := m.line()
		if err != nil {
			return err
		}
		id, err := m.add(node{kind: Text, a: uint64(s)})
		if err != nil {
			return err
		}
		return m.pushNode(node{kind: PersID, a: uint64(id)})
	case opBinPersID:
		id, err := m.pop()
		if err != nil {
			return err
		}
		return m.pushNode(node{kind: PersID, a: uint64(id)})

	case opExt1, opExt2, opExt4:
		width := map[byte]int{opExt1: 1, opExt2: 2, opExt4: 4}[op]
		if _, err := m.take(width); err != nil {
			return err
		}
		return m.pushNode(node{kind: Opaque})
	case opNextBuffer:
		return m.pushNode(node{kind: Opaque})
	case opReadonlyBuffer:
		_, err := m.top()
		return err
	}
	return syntax("unknown opcode 0x%02x", op)
}

// global makes a node of the two lines that follow: module and name.
func (m *machine) global() (uint32, error) {
	mod, err := m.line()
	if err != nil {
		return 0, err
	}
	name, err := m.line()
	if err != nil {
		return 0, err
	}
	return m.add(node{kind: Global, a: uint64(mod), b: uint64(name)})
}

func (m *machine) pushCall(isNew bool, fn, args uint32) error {
	kind := Call
	if isNew {
		kind = New
	}
	return m.pushNode(node{kind: kind, a: uint64(fn)<<32 | uint64(args)})
}

func (m *machine) pushCallOf(fn uint32, items []uint32) error {
	args := refEmptyTuple
	if len(items) > 0 {
		var err error
		if args, err = m.add(node{kind: Tuple, items: append([]uint32(nil), items...)}); err != nil {
			return err
		}
	}
	return m.pushCall(false, fn, args)
}
