package assemble

import (
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas"
)

// TestKept: what is past the bound alone goes when no reader asks for it any more, and takes no room from
// others, where it is told to; else it stays as long as it is the last.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := cas.Sum([]byte("a")), cas.Sum([]byte("b"))
		for _, lingers := range []bool{true, false} {
			linger := map[bool]time.Duration{true: time.Second}[lingers]
			k := newKept[string](100, linger)
			has := func(h cas.Hash) bool {
				_, ok := k.get(h)
				return ok
			}
			k.add(b, new(string), 60)
			k.add(a, new(string), 101)
			if has(b) != lingers {
				t.Errorf("lingers %t: the small one is found: %t", lingers, has(b))
			}
			for range 3 {
				time.Sleep(time.Second - 1)
				if !has(a) {
					t.Errorf("lingers %t: gone though it is asked for", lingers)
				}
			}
			time.Sleep(2 * time.Second)
			if has(a) == lingers {
				t.Errorf("lingers %t: nobody asked for it, and it is found: %t", lingers, has(a))
			}
			k.add(b, new(string), 60)
			k.add(cas.Sum([]byte("c")), new(string), 50)
			if has(b) || k.bytes != 50 {
				t.Errorf("lingers %t: %d bytes are kept", lingers, k.bytes)
			}
		}
	})
}
