package volume

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/tree"
)

// filled is a safetensors file of one tensor of n numbers of float32, each of which is x.
func filled(t testing.TB, n int, x uint32) []byte {
	t.Helper()
	p, err := safetensors.AppendSaved(nil, []safetensors.Entry{
		{Name: "w", DType: "F32", Shape: []int64{int64(n)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		p = binary.LittleEndian.AppendUint32(p, x)
	}
	return p
}

// rounded is filled cast to bfloat16.
func rounded(t testing.TB, n int, x uint16) []byte {
	t.Helper()
	p, err := safetensors.AppendSaved(nil, []safetensors.Entry{
		{Name: "w", DType: "BF16", Shape: []int64{int64(n)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, bytes.Repeat(binary.LittleEndian.AppendUint16(nil, x), n)...)
}

const float1, float2 = 0x3f800000, 0x40000000

// A computed file follows its source: while that is written there is none, and an open one gives no byte of a
// newer source.
func TestMakeOutdated(t *testing.T) {
	for _, state := range []string{resident, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			r.mkdir("a")
			r.write("a/m.safetensors", filled(t, 50_000, float1))
			r.write("b.safetensors", filled(t, 50_000, float2))
			if state == packed {
				r.packOut("a/m.safetensors")
				r.packOut("b.safetensors")
			}
			made := []string{".ckptfs/make/cast/bf16/a/m.safetensors",
				".ckptfs/make/soup/mean/b.safetensors/+/a/m.safetensors/soup.safetensors"}
			r.same(made[0], rounded(t, 50_000, float1>>16))
			r.same(made[1], filled(t, 50_000, 0x3fc00000))
			for _, p := range made {
				n := r.find(p)
				h, err := r.Open(n, unix.O_RDONLY)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					r.release(h)
					r.forget(n)
				}()
				defer func() {
					_, err := h.Read(make([]byte, 100), 0)
					wantErr(t, p+": a read of what was", err, unix.ESTALE)
					_, err = r.Open(n, unix.O_RDONLY)
					wantErr(t, p+": an open of what was", err, unix.ESTALE)
				}()
			}
			w := r.open("a/m.safetensors", unix.O_WRONLY)
			for _, p := range made {
				if r.exists(p) {
					t.Errorf("%s is there while its source is written", p)
				}
			}
			if why := r.read(made[0] + ".why"); !strings.Contains(string(why), "a program writes") {
				t.Errorf("the reason is %q", why)
			}
			r.writeAt(w, filled(t, 50_000, float2), 0)
			r.release(w)
			r.same(made[0], rounded(t, 50_000, float2>>16))
			r.same(made[1], filled(t, 50_000, float2))

			r.unlink("a/m.safetensors")
			for _, p := range made {
				if r.exists(p) {
					t.Errorf("%s is there without its source", p)
				}
			}
		})
	}
}

// An open computed file is read on when its source is evicted, renamed or removed.
func TestMakeOpen(t *testing.T) {
	r := newRig(t)
	r.write("m.safetensors", filled(t, 300_000, float1))
	r.packOut("m.safetensors")
	n := r.find(".ckptfs/make/cast/bf16/m.safetensors")
	defer r.forget(n)
	h, err := r.Open(n, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer r.release(h)
	want := rounded(t, 300_000, float1>>16)
	check := func(when string) {
		t.Helper()
		got, err := r.readHandle(h)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", when, len(got), err)
		}
	}
	check("evicted")
	r.rename("m.safetensors", "n.safetensors")
	check("renamed")
	r.same(".ckptfs/make/cast/bf16/n.safetensors", want)
	r.unlink("n.safetensors")
	check("removed")
}

// A damaged source is an error of a read, and never other bytes.
func TestMakeDamaged(t *testing.T) {
	r := newRig(t, hotSize(0))
	a := random(600<<10, 1)
	r.write("m.safetensors", weights(t, []string{"w"}, a))
	r.packOut("m.safetensors")
	r.damage(cas.Sum(a[256<<10 : 512<<10])) // before anything is read ahead
	n := r.find(".ckptfs/make/cast/bf16/m.safetensors")
	defer r.forget(n)
	h, err := r.Open(n, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer r.release(h)
	_, err = h.Read(make([]byte, 100), 1000)
	if err != nil {
		t.Errorf("a read of what is whole: %v", err)
	}
	_, err = h.Read(make([]byte, 100<<10), 300<<10)
	wantErr(t, "a read", err, unix.EIO)
}

// Who may not read one of the files that another is computed of finds nothing, and is told nothing.
func TestMakeOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	r := newRig(t)
	r.mkdir("open")
	r.mkdir("closed")
	r.write("open/m.safetensors", filled(t, 100, float1))
	r.write("open/private.safetensors", filled(t, 100, float1))
	r.write("closed/m.safetensors", filled(t, 100, float1))
	r.write("closed/private.safetensors", filled(t, 100, float1))
	r.symlink("../closed/m.safetensors", "open/link.safetensors")
	r.symlink("../../outside.safetensors", "open/out.safetensors")
	for p, mode := range map[string]uint32{"open/private.safetensors": 0o600, "closed": 0o700} {
		r.setattr(p, &tree.SetAttr{Mode: &mode})
	}
	p := person{"stranger", 3000, []uint32{3000}}
	stranger, root := visitor{r, p, p.caller(t)}, visitor{r, person{what: "root"}, tree.Caller{}}
	const m, soup = "open/m.safetensors", ".ckptfs/make/soup/mean/"
	for name, want := range map[string][2]bool{
		".ckptfs/make/cast/f16/" + m:                                                {true, true},
		".ckptfs/make/cast/f16/open/private.safetensors":                            {false, true},
		".ckptfs/make/cast/f16/open/link.safetensors":                               {false, true},
		".ckptfs/make/cast/f16/open/out.safetensors":                                {false, false},
		".ckptfs/make/cast/f16/closed/m.safetensors":                                {false, true},
		soup + m + "/+/" + m + "/soup.safetensors":                                  {true, true},
		soup + m + "/+/open/private.safetensors/soup.safetensors":                   {false, true},
		soup + "open/private.safetensors/+/" + m + "/soup.safetensors":              {false, true},
		soup + m + "/+/open/link.safetensors/soup.safetensors":                      {false, true},
		soup + m + "/+/closed/m.safetensors/+/" + m + "/soup.safetensors":           {false, true},
		soup + m + "/+/../open/private.safetensors/soup.safetensors":                {false, false},
		".ckptfs/make/cast/f16/../../../closed/m.safetensors":                       {false, false},
		".ckptfs/make/cast/f16/open/%2e%2e%2fclosed%2fm.safetensors":                {false, false},
		".ckptfs/make/cast/f16/open/private.safetensors" + "/" + "soup.safetensors": {false, false},
	} {
		for i, v := range []visitor{stranger, root} {
			_, err := v.get(name)
			if (err == nil) != want[i] {
				t.Errorf("%s: %s: %v", v.what, name, err)
			}
		}
	}
	told := func() {
		t.Helper()
		for _, name := range []string{"open/private.safetensors", "open/link.safetensors"} {
			why, err := stranger.get(".ckptfs/make/cast/f16/" + name + ".why")
			if err != nil || !strings.Contains(why, "no such file") {
				t.Errorf("%s: a stranger is told %q, %v", name, why, err)
			}
		}
	}
	told()
	for _, p := range []string{"open/private.safetensors", "closed/m.safetensors"} {
		defer r.release(r.open(p, unix.O_WRONLY))
	}
	told()
}

// Many computed files are read at once, with little memory for their plans.
func TestMakeAtOnce(t *testing.T) {
	r := newRig(t).reopen(func(o *Options) { o.CacheBytes = 1 << 20 })
	const files = 20
	for i := range files {
		r.write(fmt.Sprintf("%d.safetensors", i), filled(t, 20_000+i, float1))
	}
	done := make(chan error)
	for i := range files {
		go func() {
			want := rounded(t, 20_000+i, float1>>16)
			for range 5 {
				got, err := r.tryRead(fmt.Sprintf(".ckptfs/make/cast/bf16/%d.safetensors", i))
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("%d has other bytes", i)
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range files {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
