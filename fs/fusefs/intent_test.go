package fusefs

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A thread that is still running is asked again, and not for ever.
func TestSyscallOf(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if line := syscallOf(uint32(unix.Gettid())); line == "" { // it reads its own: it runs
		t.Error("nothing is said of a thread that runs")
	}
	if line := syscallOf(1 << 30); line != "" {
		t.Errorf("of no thread: %q", line)
	}
}

func TestParseSyscall(t *testing.T) {
	for _, bad := range []string{"", "running", "-1 0x7ffd 0x7f2a", "257 0x1", "x 0x1 0x2 0x3 0x4 0x5 0x6", "257 1 2 3 4 5 z"} {
		if _, _, ok := parseSyscall(bad); ok {
			t.Errorf("%q was taken", bad)
		}
	}
	number, args, ok := parseSyscall("257 0xffffff9c 0x7ffd0b7e0420 0xc1 0x1a4 0x0 0x0 0x7ffd0b7dfb68 0x7f2a4c0f9a3b\n")
	if !ok || number != 257 || args != [6]uint64{0xffffff9c, 0x7ffd0b7e0420, 0xc1, 0x1a4, 0, 0} {
		t.Errorf("%d %x %v", number, args, ok)
	}
}

// A path is read from memory up to its end, also across pages, and never past what is there.
func TestLastName(t *testing.T) {
	pid := uint32(os.Getpid())
	mem, err := unix.Mmap(-1, 0, 3*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Mprotect(mem[2*4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at         int
		path, want string
	}{
		{0, "a\x00", "a"}, {4090, "folder/model.safetensors\x00", "model.safetensors"}, {100, "folder//x///\x00", "x"}, {7, "\x00", ""},
		{8190, "xy", ""}, // no end before the memory's
	} {
		copy(mem[c.at:], c.path)
		addr := uint64(uintptr(unsafe.Pointer(&mem[c.at])))
		if got := lastName(pid, addr); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.path, c.at, got, c.want)
		}
	}
	runtime.KeepAlive(mem)
	if lastName(pid, 0) != "" || makes(0, "x") || makes(1<<30, "x") {
		t.Error("something was read where nothing is")
	}
}
