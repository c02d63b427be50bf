package dcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// written is a pickle.
type written struct{ bytes.Buffer }

func (p *written) text(s string) {
	p.WriteByte('X')
	p.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	p.WriteString(s)
}

func (p *written) get(n byte) { p.Write([]byte{'h', n}) }

// kept takes what is on the stack off it. From then on it is got by a number.
func (p *written) kept(n byte) { p.Write([]byte{'q', n, '0'}) }

// object is one of a class, with a state of names and of what writes the values.
func (p *written) object(class string, state ...any) {
	fmt.Fprintf(p, "c%s\n)R}(", class)
	for i := 0; i < len(state); i += 2 {
		p.text(state[i].(string))
		state[i+1].(func())()
	}
	p.WriteString("ub")
}

// Values that hostile pickles refer to.
const (
	aSize byte = iota
	aTensor
	aKey
	aState // of a key
	anInfo
	aName
	aPath
)

// hostile is a .metadata of one tensor, of this name and so many dimensions, that has many keys of it: each
// the same, or one of its own with the state of all. A key has more fields than it needs.
func hostile(name string, rank, keys, fields int, own bool) []byte {
	p := &written{}
	get := func(n byte) func() { return func() { p.get(n) } }
	text := func(s string) func() { return func() { p.text(s) } }
	p.WriteString("\x80\x02ctorch\nSize\n((" + strings.Repeat("K\x00", rank) + "ttR")
	p.kept(aSize)
	p.object("m\nTensor", "size", get(aSize), "chunks", func() {
		p.WriteString("](")
		p.object("m\nChunk", "offsets", get(aSize), "sizes", get(aSize))
		p.WriteString("e")
	})
	p.kept(aTensor)
	p.text(name)
	p.kept(aName)
	p.WriteString("}(" + strings.Repeat("NN", fields))
	p.text("fqn")
	p.get(aName)
	p.text("offset")
	p.get(aSize)
	p.WriteString("u")
	p.kept(aState)
	p.WriteString("cm\nKey\n)R")
	p.get(aState)
	p.WriteString("b")
	p.kept(aKey)
	p.object("m\nInfo", "relative_path", text("x.distcp"), "offset", text(""), "offset",
		func() { p.WriteString("K\x00") }, "length", func() { p.WriteString("K\x01") })
	p.kept(anInfo)
	p.WriteString("(" + strings.Repeat("h"+string(aName), rank) + "t")
	p.kept(aPath)
	p.object("torch.distributed.checkpoint.metadata\nMetadata", "state_dict_metadata", func() {
		p.WriteString("}(")
		p.get(aName)
		p.get(aTensor)
		p.WriteString("u")
	}, "storage_data", func() {
		p.WriteString("}(")
		for range keys {
			if own {
				p.WriteString("cm\nKey\n)R")
				p.get(aState)
				p.WriteString("b")
			} else {
				p.get(aKey)
			}
			p.get(anInfo)
		}
		p.WriteString("u")
	}, "planner_data", func() {
		p.WriteString("}(")
		for i := range keys {
			p.text(fmt.Sprint(i))
			p.get(aPath)
		}
		p.WriteString("u")
	})
	p.WriteString(".")
	return p.Bytes()
}

// What a pickle refers to again and again takes no memory each time, and names and objects have bounds.
func TestHostile(t *testing.T) {
	if files, err := Parse(hostile("a", 64, 1, 0, false)); err != nil || len(files["x.distcp"]) != 1 {
		t.Fatalf("one item: %v, %v", files, err)
	}
	for what, b := range map[string][]byte{
		"one key":         hostile("a", 64, 1<<18, 0, false),
		"a long name":     hostile(strings.Repeat("a", 1<<20), 64, 1<<12, 0, true),
		"a state":         hostile(strings.Repeat("a", 4000), 64, 1<<16, 0, true),
		"too many":        hostile("a", 1, maxItems+1, 0, false),
		"a wide object":   hostile("a", 1, 1, 1<<10, false),
		"nothing in size": hostile("", 0, 1<<16, 0, true),
	} {
		most := fixture.Bound{Fixed: 16 << 20, PerByte: 200}
		fixture.Within(t, most, len(b), func() {
			if _, err := Parse(b); !errors.Is(err, formats.ErrNotFormat) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// So do the paths of names, which are no longer than these.
func TestHostilePaths(t *testing.T) {
	for what, b := range map[string][]byte{
		"a path of many":   hostile("", 1<<16, 1<<8, 0, false),
		"a path of length": hostile(strings.Repeat("a", 1<<20), 64, 8, 0, false),
	} {
		most := fixture.Bound{Fixed: 16 << 20, PerByte: 200}
		fixture.Within(t, most, len(b), func() {
			for name, path := range Paths(b) {
				t.Fatalf("%s: %q has %d", what, name, len(path))
			}
		})
	}
}
