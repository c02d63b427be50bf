package fusefs

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// INIT is answered as go-fuse's own server answers it.
func TestInit(t *testing.T) {
	for _, minor := range []uint32{12, 22, 23, 31, 40, 44, 45} {
		for _, flags := range []uint64{0, ^uint64(0), 0x73fffffb, 0x3ff_73fffffb, 0xffffffff} {
			for _, o := range []Options{{}, {Background: 7, AllowOther: true}, {ReadOnly: true}} {
				init := initRequest(minor, flags)
				s := &Server{RawFileSystem: fuse.NewDefaultRawFileSystem()}
				got, err := answerInit(fuse.NewProtocolServer(s, settings(o, t.TempDir())), init)
				if err != nil {
					t.Fatal(err)
				}
				if want := answerOfServer(t, s, o, init); !bytes.Equal(got, want) {
					t.Errorf("minor %d, flags %x, %+v:\n%x, and go-fuse\n%x", minor, flags, o, got, want)
				}
			}
		}
	}
	bad := initRequest(45, 0)
	bad[40] = 8 // major
	ps := fuse.NewProtocolServer(fuse.NewDefaultRawFileSystem(), settings(Options{}, "."))
	answer, err := answerInit(ps, bad)
	if h := as[fuse.OutHeader](answer); err == nil || h == nil || fuse.Status(-h.Status) != fuse.EIO {
		t.Errorf("of another protocol: %v, %x", err, answer)
	}
}

// answerOfServer is what go-fuse's server answers, mounted as this package did before it had a loop.
func answerOfServer(t *testing.T, s *Server, o Options, init []byte) []byte {
	t.Helper()
	kernel, dev := sockets(t)
	defer unix.Close(kernel)
	if _, err := unix.Write(kernel, init); err != nil {
		t.Fatal(err)
	}
	words, flags := mountWords(o)
	_, err := fuse.NewServer(s, fmt.Sprintf("/dev/fd/%d", dev), &fuse.MountOptions{
		AllowOther:               o.AllowOther,
		Options:                  append([]string{"default_permissions"}, words...),
		DirectMountFlags:         flags,
		FsName:                   o.FsName,
		Name:                     "ckptfs",
		MaxWrite:                 maxRequest,
		MaxBackground:            ahead(o.Background),
		DisableSplice:            true,
		ExplicitDataCacheControl: true,
		PanicHandler:             crash,
		MaxStackDepth:            stackDepth(t.TempDir()),
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_READDIRPLUS_AUTO |
			fuse.CAP_DIRECT_IO_ALLOW_MMAP | fuse.CAP_ASYNC_DIO,
	})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(kernel, buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}
