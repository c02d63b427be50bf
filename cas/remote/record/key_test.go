package record

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestKeys(t *testing.T) {
	x := ID{0xab, 0xcd, 15: 0xef}
	for want, got := range map[string]string{
		"d/ab/abcd00000000000000000000000000ef": ClassData.Key(x),
		"m/ab/abcd00000000000000000000000000ef": ClassMeta.Key(x),
		"t/ab/abcd00000000000000000000000000ef": ClassTable.Key(x),
		"i/ab/abcd00000000000000000000000000ef": ClassShard.Key(x),
		"heads/gpu-1.00000001":                  HeadKey(me),
		"heads/@archive":                        HeadKey(ArchiveWriter),
		"probe/gpu-1.00000001":                  ProbeKey(me),
		"gc/e/0000002a":                         EpochKey(42),
		"gc/e/ffffffff":                         EpochKey(1<<32 - 1),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestWriterCheck(t *testing.T) {
	for _, w := range []Writer{me, "a.00000000", "0-.ffffffff", "@index", "@archive", "@exports",
		Writer(strings.Repeat("n", 40) + ".0123abcd")} {
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, w := range []Writer{"", "a", "a.", ".00000000", "a.0000000", "a.000000000", "a.0000000g",
		"a.0000000F", "A.00000000", "a/b.00000000", "a.b.00000000", "ä.00000000", "a\x00.00000000", "@other",
		"@index.00000000",
		Writer(strings.Repeat("n", 41) + ".0123abcd")} {
		if w.Check() == nil {
			t.Errorf("%q is taken for a writer", w)
		}
	}
}

// keys are keys, and what is nearly one.
var keys = []string{"heads/gpu-1.00000001", "heads/@index", "d/ab/abcd00000000000000000000000000ef",
	"m/ab/abcd00000000000000000000000000ef", "t/00/00000000000000000000000000000000",
	"i/ff/ffffffffffffffffffffffffffffffff", "gc/e/0000002a", "gc/e/ffffffff", "format", "",
	"heads/", "heads/@other", "heads//@index", "Heads/@index", "d/ac/abcd00000000000000000000000000ef",
	"d/AB/ABcd00000000000000000000000000ef", "d/ab/abcd00000000000000000000000000eg", "d/ab/abcd",
	"x/ab/abcd00000000000000000000000000ef", "d/abcd00000000000000000000000000ef",
	"abcd00000000000000000000000000ef", "gc/e/00000000", "gc/e/2a", "gc/e/0000002A", "gc/e/+000002a",
	"gc/e/00000002a", "gc/e/100000000", "0000002a"}

// checkKey holds that a parsed key makes the same key, and is not parsed as another.
func checkKey(t interface{ Fatalf(string, ...any) }, key string) (parsed bool) {
	again := map[string]bool{}
	if w, ok := ParseHead(key); ok {
		again[HeadKey(w)] = true
	}
	if c, id, ok := ParseObject(key); ok {
		again[c.Key(id)] = true
		if !strings.HasPrefix(key, c.Prefix()) {
			t.Fatalf("%q is not below %s", key, c.Prefix())
		}
	}
	if n, ok := ParseEpoch(key); ok {
		again[EpochKey(n)] = true
		if n == 0 {
			t.Fatalf("%q is of no epoch", key)
		}
	}
	if len(again) > 1 || len(again) == 1 && !again[key] {
		t.Fatalf("%q makes %v", key, again)
	}
	return len(again) == 1
}

func TestParseKeys(t *testing.T) {
	for i, key := range keys {
		if got := checkKey(t, key); got != (i < 8) {
			t.Errorf("%q: parsed %v", key, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var x ID
		copy(x[:], rapid.SliceOfN(rapid.Byte(), len(x), len(x)).Draw(t, "id"))
		n := rapid.Uint32Min(1).Draw(t, "epoch")
		w := Writer(rapid.StringMatching(`[a-z0-9-]{1,40}\.[0-9a-f]{8}`).Draw(t, "writer"))
		for _, key := range []string{ClassData.Key(x), ClassMeta.Key(x), ClassTable.Key(x), ClassShard.Key(x),
			EpochKey(n), HeadKey(w)} {
			if !checkKey(t, key) {
				t.Fatalf("%q is not parsed", key)
			}
			checkKey(t, string(mutate(t, []byte(key))))
		}
	})
}
