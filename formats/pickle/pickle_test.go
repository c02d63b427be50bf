package pickle

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ckptfs/formats/fixture"
)

var update = flag.Bool("update", false, "write the expected trees again")

// render writes the graph below v, one node a line. A container that is met again is shown by its number
// alone.
func render(v Value) string {
	var b strings.Builder
	seen := make(map[int]int)
	var walk func(label string, v Value, indent int)
	walk = func(label string, v Value, indent int) {
		fmt.Fprintf(&b, "%s%s%v", strings.Repeat("  ", indent), label, v.Kind())
		switch v.Kind() {
		case None, Opaque:
		case Bool:
			fmt.Fprintf(&b, " %v", v.Bool())
		case Int:
			n, _ := v.Int()
			fmt.Fprintf(&b, " %d", n)
		case Float:
			f, _ := v.Float()
			fmt.Fprintf(&b, " %v", f)
		case Text, Bytes:
			fmt.Fprintf(&b, " %q", v.Text())
		case Global:
			m, n := v.Global()
			fmt.Fprintf(&b, " %s %s", m, n)
		default:
			if n, ok := seen[v.ID()]; ok {
				fmt.Fprintf(&b, " same as @%d\n", n)
				return
			}
			seen[v.ID()] = len(seen)
			fmt.Fprintf(&b, " @%d", seen[v.ID()])
		}
		b.WriteByte('\n')
		if fn, args, ok := v.Call(); ok {
			walk("fn: ", fn, indent+1)
			walk("args: ", args, indent+1)
		}
		if id, ok := v.PersID(); ok {
			walk("id: ", id, indent+1)
		}
		for i := range v.Len() {
			walk("- ", v.At(i), indent+1)
		}
		for i := range v.NumPairs() {
			k, val := v.Pair(i)
			walk("key: ", k, indent+1)
			walk("val: ", val, indent+2)
		}
		if s, ok := v.State(); ok {
			walk("state: ", s, indent+1)
		}
	}
	walk("", v, 0)
	return b.String()
}

func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../testdata/pickle/*.pkl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	files := make(map[string][]byte)
	for _, path := range paths {
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestFixtures compares the trees of Python's own pickles with their goldens.
func TestFixtures(t *testing.T) {
	for path, p := range fixtures(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			g, err := Parse(p, DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			if g.Size() != len(p) {
				t.Errorf("%d of %d bytes", g.Size(), len(p))
			}
			got := render(g.Root())
			golden := path + ".tree.txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("tree differs from %s:\n%s", golden, got)
			}
		})
	}
}

// TestOpcodes has each opcode that the fixtures lack, and the corners of the others.
func TestOpcodes(t *testing.T) {
	for _, c := range []struct{ name, pickle, want string }{
		{"int", "I-12\n.", "int -12\n"},
		{"int true", "I01\n.", "bool true\n"},
		{"int false", "I00\n.", "bool false\n"},
		{"int beyond 64 bits", "I123456789012345678901\n.", "opaque\n"},
		{"long", "L7L\n.", "int 7\n"},
		{"long1 of nothing", "\x8a\x00.", "int 0\n"},
		{"long1", "\x8a\x02\x00\xff.", "int -256\n"},
		{"long1 of 8", "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", "int -9223372036854775808\n"},
		{"long1 of 9", "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.", "opaque\n"},
		{"long4", "\x8b\x01\x00\x00\x00\x7f.", "int 127\n"},
		{"binint", "J\xff\xff\xff\xff.", "int -1\n"},
		{"binint2", "M\x00\x01.", "int 256\n"},
		{"float", "F1.5\n.", "float 1.5\n"},
		{"binfloat", "G\x3f\xf8\x00\x00\x00\x00\x00\x00.", "float 1.5\n"},
		{"string", "S'a b'\n.", "text \"a b\"\n"},
		{"string with an escape", "S'a\\n'\n.", "opaque\n"},
		{"unicode", "Vab\n.", "text \"ab\"\n"},
		{"unicode in Latin-1", "V\xe9\n.", "opaque\n"},
		{"binstring", "T\x01\x00\x00\x00a.", "text \"a\"\n"},
		{"short binstring", "U\x01a.", "text \"a\"\n"},
		{"unicode8", "\x8d\x01\x00\x00\x00\x00\x00\x00\x00a.", "text \"a\"\n"},
		{"binbytes", "B\x01\x00\x00\x00a.", "bytes \"a\"\n"},
		{"binbytes8", "\x8e\x01\x00\x00\x00\x00\x00\x00\x00a.", "bytes \"a\"\n"},
		{"dup and pop", "N20.", "none\n"},
		{"pop a mark", "N(0.", "none\n"},
		{"pop_mark", "N(NN1.", "none\n"},
		{"put and get", "Np5\n0g5\n.", "none\n"},
		{"binput 255, then memoize", "Nq\xff0\x88\x940h\x01.", "bool true\n"},
		{"memoize counts", "N\x940\x88\x940h\x01.", "bool true\n"},
		{"put over another", "Nq\x000\x88q\x000h\x00.", "bool true\n"},
		{"long put", "Nr\x00\x00\x01\x000j\x00\x00\x01\x00.", "none\n"},
		{"frame", "\x95\x02\x00\x00\x00\x00\x00\x00\x00N.", "none\n"},
		{"tuple of none", "(t.", "tuple @0\n"},
		{"dict of pairs", "(K\x01K\x02d.", "dict @0\n  key: int 1\n    val: int 2\n"},
		{"list of marks", "(K\x01l.", "list @0\n  - int 1\n"},
		{"inst", "(K\x01im\nC\n.", "call @0\n  fn: global m C\n  args: tuple @1\n    - int 1\n"},
		{"obj", "(cm\nC\nK\x01o.", "call @0\n  fn: global m C\n  args: tuple @1\n    - int 1\n"},
		{"newobj_ex", "cm\nC\n)}\x92.",
			"new @0\n  fn: global m C\n  args: tuple @1\n    - tuple @2\n    - dict @3\n"},
		{"persid", "Pname\n.", "persid @0\n  id: text \"name\"\n"},
		{"binpersid", "K\x01Q.", "persid @0\n  id: int 1\n"},
		{"ext", "\x82\x01\x83\x01\x00\x840000\x87.", "tuple @0\n  - opaque\n  - opaque\n  - opaque\n"},
		{"buffers", "\x97\x98.", "opaque\n"},
		{"object with everything", "cm\nC\n)RK\x01a(K\x02e(K\x03K\x04uNb.",
			"call @0\n  fn: global m C\n  args: tuple @1\n  - int 1\n  - int 2\n  key: int 3\n    val: int 4\n  state: none\n"},
		{"set on an object", "cm\nC\n)R(K\x01\x90.",
			"call @0\n  fn: global m C\n  args: tuple @1\n  - int 1\n"},
		{"what follows is not read", "N.\xff\xff", "none\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Parse([]byte(c.pickle), DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			if got := render(g.Root()); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct{ name, pickle, want string }{
		{"nothing", "", "ends early at offset 0"},
		{"no stop", "N", "ends early at offset 1"},
		{"stop on nothing", ".", "underflow"},
		{"two values", "NN.", "1 values and 0 marks left"},
		{"a mark left", "(N.", "0 values and 1 marks left"},
		{"unknown opcode", "N\x00.", "unknown opcode 0x00 at offset 1"},
		{"unknown opcode ff", "\xff", "unknown opcode 0xff"},
		{"protocol 6", "\x80\x06N.", "protocol 6"},
		{"frame past the end", "\x95\x03\x00\x00\x00\x00\x00\x00\x00N.", "ends early"},
		{"pop on nothing", "0", "underflow"},
		{"dup on nothing", "2", "underflow"},
		{"tuple3 of two", "NN\x87.", "underflow"},
		{"tuple past a mark", "N(N\x86.", "underflow"},
		{"append past a mark", "](Na.", "underflow"},
		{"tuple without a mark", "Nt.", "no mark"},
		{"append to nothing", "Na.", "underflow"},
		{"append to a tuple", ")Na.", "elements added to a tuple"},
		{"append to a dict", "}Na.", "elements added to a dict"},
		{"add to a list", "](N\x90.", "elements added to a list"},
		{"items on a list", "]NNs.", "items set on a list"},
		{"items on a global", "cm\nC\nNNs.", "items set on a global"},
		{"odd items", "}(Nu.", "key without a value"},
		{"odd dict", "(Nd.", "key without a value"},
		{"build a dict", "}Nb.", "state set on a dict"},
		{"build a global", "cm\nC\nNb.", "state set on a global"},
		{"build twice", "cm\nC\n)RNbNb.", "or twice"},
		{"get of nothing", "h\x00.", "memo has no 0"},
		{"get in a gap", "Nq\x02h\x01.", "memo has no 1"},
		{"get of 2^63", "g9223372036854775808\n.", "memo has no"},
		{"get of a word", "gx\n.", "memo key in text"},
		{"put of nothing", "q\x00.", "underflow"},
		{"put of 2^32", "Np4294967296\n.", "memo keys"},
		{"int as a word", "Ix\n.", "integer in text"},
		{"float as a word", "Fx\n.", "float in text"},
		{"string without quotes", "Sa\n.", "without quotes"},
		{"string of one quote", "S'\n.", "without quotes"},
		{"line without end", "Vabc", "ends early"},
		{"text past the end", "X\x05\x00\x00\x00ab.", "ends early"},
		{"text of 2^64-1", "\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "ends early"},
		{"long4 of 2^32-1", "\x8b\xff\xff\xff\xffab.", "ends early"},
		{"global of numbers", "NN\x93.", "named by a none"},
		{"obj of nothing", "(o.", "underflow"},
		{"ext cut off", "\x84\x00", "ends early"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.pickle), DefaultLimits)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrLimit) {
				t.Errorf("error %v is neither", err)
			}
		})
	}
}

// TestBombs has inputs that take Python's unpickler gigabytes or forever. Each ends at once.
func TestBombs(t *testing.T) {
	const n = 20 << 20
	rep := func(s string) []byte { return bytes.Repeat([]byte(s), n/len(s)) }
	with := func(head string, body []byte) []byte { return append([]byte(head), body...) }
	doubled := []byte("]")
	for range 1000 { // each list has the one before twice: 2^1000 paths
		doubled = append(doubled, "q\x000](h\x00h\x00e"...)
	}
	start := time.Now()
	for _, c := range []struct {
		name  string
		input []byte
		want  error // nil: no error
	}{
		{"empty dicts", rep("}"), ErrLimit},
		{"marks", rep("("), ErrLimit},
		{"dups", with("N", rep("2")), ErrLimit},
		{"gets", with("]q\x00", append(rep("h\x00"), rep("h\x00")...)), ErrLimit},
		{"puts of one key", append(with("N", rep("r\x00\x00\x00\x00")), '.'), nil},
		{"nested tuples", append(with("N", bytes.Repeat([]byte{opTuple1}, 1<<21)), '.'), nil},
		{"doubled lists", append(doubled, '.'), nil},
		{"a list in itself", []byte("]q\x00h\x00a."), nil},
		{"scattered puts", scatteredPuts(1 << 20), ErrLimit},
		{"globals", rep("c\n\n"), ErrLimit},
		{"calls", with("N", rep("NR")), ErrLimit},
		{"insts", rep("(i\n\n"), ErrLimit},
	} {
		t0 := time.Now()
		if _, err := Parse(c.input, DefaultLimits); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		t.Logf("%s: %v", c.name, time.Since(t0))
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
}

func scatteredPuts(n int) []byte {
	p := []byte("N")
	for i := range n {
		k := uint32(i) * 2654435761
		p = append(p, opLongBinPut, byte(k), byte(k>>8), byte(k>>16), byte(k>>24))
	}
	return p
}

// bound is what a pickle may take.
var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 100}

// FuzzParse checks that any input ends without a panic in a graph that is linear in it and refers to itself
// alone.
func FuzzParse(f *testing.F) {
	for _, p := range fixtures(f) {
		f.Add(p)
	}
	f.Add([]byte("(cm\nC\nK\x01oNb."))
	f.Fuzz(func(t *testing.T, p []byte) {
		var g *Pickle
		var err error
		fixture.Within(t, bound, len(p), func() { g, err = Parse(p, DefaultLimits) })
		if err != nil {
			if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrLimit) {
				t.Fatal(err)
			}
			return
		}
		if g.Size() > len(p) || p[g.Size()-1] != opStop {
			t.Fatalf("stopped after %d of %d bytes", g.Size(), len(p))
		}
		if g.NumNodes() > 3*len(p)+300 {
			t.Fatalf("%d nodes of %d bytes", g.NumNodes(), len(p))
		}
		for i := range g.NumNodes() {
			v := Value{g, uint32(i)}
			refs := 0
			visit := func(x Value) {
				if refs++; x.ID() >= g.NumNodes() {
					t.Fatalf("node %d refers to %d of %d", i, x.ID(), g.NumNodes())
				}
			}
			for k := range v.Len() {
				visit(v.At(k))
			}
			for k := range v.NumPairs() {
				key, val := v.Pair(k)
				visit(key)
				visit(val)
			}
			if fn, args, ok := v.Call(); ok {
				visit(fn)
				visit(args)
			}
			if s, ok := v.State(); ok {
				visit(s)
			}
			if id, ok := v.PersID(); ok {
				visit(id)
			}
			if refs > 2*len(p)+3 {
				t.Fatalf("node %d has %d references", i, refs)
			}
			_, _ = v.Text(), v.Bool()
			_, _ = v.Global()
			_, _ = v.Int()
			_, _ = v.Float()
		}
	})
}
