package content

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCloneInParts(t *testing.T) {
	r := newRig(t)
	data := random(2*minClone+300<<10+11, 1)
	r.write("from", data)
	r.write("other", random(minClone, 2))
	r.packOut("from")
	r.packOut("other")
	// All of it in parts ends as the source's own manifest.
	dst := r.open("to", unix.O_WRONLY)
	r.copyTo("from", dst, minClone)
	dst.Release()
	r.want("to", "packed")
	r.same("to", data)
	if a, b := r.state("from").Record, r.state("to").Record; a.Manifest != b.Manifest {
		t.Error("another manifest")
	}
	dst = r.open("to2", unix.O_WRONLY)
	r.copyTo("from", dst, minClone+200<<10)
	dst.Release()
	r.same("to2", data)
	dst = r.open("to3", unix.O_WRONLY)
	src, other := r.open("from", unix.O_RDONLY), r.open("other", unix.O_RDONLY)
	before := r.store.Stats().Bytes
	for _, p := range []struct {
		from    *Handle
		off, at int64
	}{{src, 12345, 0}, {other, 0, minClone}, {src, 0, 2 * minClone}} {
		if n, err := dst.CopyFrom(p.from, p.off, p.at, minClone, 0); n != minClone || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if now := r.store.Stats().Bytes - before; now > 64<<10 {
		t.Errorf("three shared parts took %d bytes", now)
	}
	r.want("to3", "packed")
	dst.Release()
	src.Release()
	other.Release()
	want := bytes.Join([][]byte{data[12345:][:minClone], random(minClone, 2), data[:minClone]}, nil)
	r.same("to3", want)
	r.forget()
	r.same("to3", want)
	r.same("to2", data)
}

// A part that is shorter than the limit is copied, and the target stays plain.
func TestShortPartIsCopied(t *testing.T) {
	r := newRig(t)
	data := random(minClone+100<<10, 1)
	r.write("from", data)
	r.packOut("from")
	src := r.open("from", unix.O_RDONLY)
	defer src.Release()
	for _, c := range []struct {
		name  string
		n     int64
		state string
	}{{"short", minClone - 1, "plain"}, {"long", minClone, "packed"}} {
		dst := r.open(c.name, unix.O_WRONLY)
		if n, err := dst.CopyFrom(src, 0, 0, c.n, 0); n != c.n || err != nil {
			t.Fatalf("%s: %d, %v", c.name, n, err)
		}
		dst.Release()
		r.want(c.name, c.state)
		r.same(c.name, data[:c.n])
	}
}

// A checkpoint stays one when it is copied in parts.
func TestCloneInPartsKeepsTensors(t *testing.T) {
	r := newRig(t)
	body := random(2*minClone, 3)
	head := fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%[1]d]},`+
		`"b":{"dtype":"U8","shape":[%d],"data_offsets":[%[1]d,%[3]d]}}`, minClone+4, minClone-4, 2*minClone)
	n := uint64(len(head))
	file := append([]byte{byte(n), byte(n >> 8), 0, 0, 0, 0, 0, 0}, head...)
	file = append(file, body...)
	r.write("from.safetensors", file)
	r.packOut("from.safetensors")
	m, err := r.asm.Manifest(r.state("from.safetensors").Record.Manifest)
	if err != nil || m.Format != "safetensors" {
		t.Fatalf("it is no checkpoint: %v", err)
	}
	dst := r.open("to.safetensors", unix.O_WRONLY)
	r.copyTo("from.safetensors", dst, minClone+1<<20)
	dst.Release()
	r.want("to.safetensors", "packed")
	if r.state("from.safetensors").Record.Manifest != r.state("to.safetensors").Record.Manifest {
		t.Error("another manifest")
	}
}

// A part of a file that is appended to another's copy at its own offset does not make that copy the file's
// beginning.
func TestCloneOfTwoFilesAtTheirOffsets(t *testing.T) {
	r := newRig(t)
	a, b := random(1<<20, 1), random(2*minClone+1<<20, 2)
	r.write("a", a)
	r.write("b", b)
	r.packOut("a")
	r.packOut("b")
	dst := r.open("to", unix.O_RDWR)
	r.copyTo("a", dst, 1<<40)
	src := r.open("b", unix.O_RDONLY)
	for _, off := range []int64{1 << 20, 1<<20 + minClone} {
		if n, err := dst.CopyFrom(src, off, off, minClone, 0); n != minClone || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	src.Release()
	dst.Release()
	r.same("to", append(bytes.Clone(a), b[1<<20:]...))
}

// Where the manifest cannot be shared the bytes are copied. A program that did so once is known to copy.
func TestCopyThatCannotBeShared(t *testing.T) {
	r := passthroughRig(t)
	me := uint32(os.Getpid())
	data := random(1<<20, 1)
	r.write("from", data)
	r.packOut("from")
	check := func(what, name string, dst *Handle, at int64, want []byte) {
		t.Helper()
		src := r.open("from", unix.O_RDONLY)
		defer src.Release()
		for done := int64(0); done < int64(len(data)); {
			n, err := dst.CopyFrom(src, done, at+done, int64(len(data))-done, me)
			if err != nil || n == 0 {
				t.Fatalf("%s: %d, %v", what, n, err)
			}
			done += n
		}
		dst.Release()
		r.same(name, want)
	}
	mode := func(what string, h *Handle, want Mode) {
		t.Helper()
		if h.Mode != want {
			t.Errorf("%s: mode %d, want %d", what, h.Mode, want)
		}
	}
	src := r.openBy("from", unix.O_RDONLY, me)
	dst := r.openBy("passed", unix.O_WRONLY, me)
	mode("an unknown program's", dst, Passthrough)
	check("into a file in passthrough", "passed", dst, 0, data)
	src.Release()
	// From now on it is known to copy: what it opens after a packed file is served, if it only writes it.
	src = r.openBy("from", unix.O_RDONLY, me)
	rw := r.openBy("mapped", unix.O_RDWR, me)
	mode("one that is read and written", rw, Passthrough)
	rw.Release()
	dst = r.openBy("served", unix.O_WRONLY, me)
	mode("a known copier's", dst, Direct)
	src.Release()
	check("into a served file", "served", dst, 0, data)
	r.want("served", "packed")
	dst = r.openBy("plain", unix.O_WRONLY, me)
	mode("one that follows no source", dst, Passthrough)
	r.kernel.file(dst).WriteAt([]byte("before"), 0)
	check("behind what is there", "plain", dst, 6, append([]byte("before"), data...))
	// Plain to plain is the host's to copy.
	r.write("small", []byte("plain as it is"))
	src, dst = r.open("small", unix.O_RDONLY), r.open("small2", unix.O_WRONLY)
	if n, err := dst.CopyFrom(src, 0, 0, 100, 0); n != 14 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	src.Release()
	dst.Release()
	r.same("small2", []byte("plain as it is"))
}
