package assemble

import (
	"runtime"
	"testing"

	"ckptfs/cas"
)

// TestKept: what is past the bound takes memory as long as it is used, if its users hold it; else as long as it is the last.
func TestKept(t *testing.T) {
	type big [1 << 20]byte
	a, b := cas.Sum([]byte("a")), cas.Sum([]byte("b"))
	for _, held := range []bool{true, false} {
		k := newKept[big](100, held)
		k.add(b, new(big), 60)
		v := new(big)
		k.add(a, v, 101)
		runtime.GC()
		if got, ok := k.get(a); !ok || got != v {
			t.Errorf("held %t: not found while it is used", held)
		}
		if _, ok := k.get(b); ok != held {
			t.Errorf("held %t: the small one is found: %t", held, ok)
		}
		runtime.KeepAlive(v)
		v = nil
		runtime.GC()
		if _, ok := k.get(a); ok == held {
			t.Errorf("held %t: found when it is not used any more: %t", held, ok)
		}
		k.add(b, new(big), 60)
		k.add(a, new(big), 50)
		if _, ok := k.get(b); ok || k.bytes != 50 {
			t.Errorf("held %t: %d bytes are kept", held, k.bytes)
		}
	}
}
