package posix

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// aligned is a buffer for O_DIRECT.
func aligned(n int) []byte {
	b := make([]byte, n+4096)
	off := 4096 - int(uintptr(unsafe.Pointer(&b[0]))&4095)
	return b[off : off+n]
}

var writeCases = []posixCase{
	{name: "read modify write", prepare: usual, run: func(w *world) {
		r := rand.New(rand.NewPCG(1, 2))
		fd := w.open("f", unix.O_RDWR, 0)
		for range 60 {
			off, n := r.Int64N(big+50_000), r.IntN(40_000)
			w.read(fd, n, off)
			w.write(fd, mounttest.Noise(r.Uint64(), n), off)
		}
		w.whole("f")
	}},
	{name: "read by pieces", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDONLY, 0)
		for off := int64(0); off < big+5000; off += 37_777 {
			w.read(fd, 50_000, off)
		}
		w.read(fd, 0, 0)
		w.read(fd, 10, 1<<40)
		w.read(fd, 10, -5)
		w.read(fd, big*2, 0)
	}},
	{name: "one byte", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_WRONLY, 0)
		w.moves("f", "a write", func() { w.write(fd, []byte("!"), 200_000) })
		w.moves("f", "a write of nothing", func() { w.write(fd, nil, 100) })
		w.whole("f")
	}},
	{name: "past the end", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		off, err := unix.Seek(fd, 100_000, unix.SEEK_END)
		w.say("seek %d %s", off, errnoName(err))
		w.fstat(fd)
		w.write(fd, []byte("far"), -1)
		w.fstat(fd)
		w.read(fd, 100_100, big-50)
		off, err = unix.Seek(fd, -1, unix.SEEK_SET)
		w.say("seek %d %s", off, errnoName(err))
		off, err = unix.Seek(fd, -10*big, unix.SEEK_END)
		w.say("seek %d %s", off, errnoName(err))
		off, err = unix.Seek(fd, 0, 17)
		w.say("seek %d %s", off, errnoName(err))
		w.whole("f")
	}},
	{name: "too far", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		w.do("truncate", unix.Ftruncate(fd, 1<<62))
		w.do("truncate", unix.Truncate(w.p("f"), -1))
		w.do("fallocate", unix.Fallocate(fd, 0, 1<<62, 1<<20))
		w.write(fd, []byte("x"), 1<<62)
		w.write(fd, []byte("xyz"), 1<<63-2)
		w.whole("f")
	}},
	{name: "truncate", prepare: func(w *world) {
		usual(w)
		w.file("g", mounttest.Noise(5, big))
		w.file("h", mounttest.Noise(6, big))
	}, run: func(w *world) {
		w.moves("f", "truncate down", func() { w.do("truncate", unix.Truncate(w.p("f"), 70_001)) })
		w.whole("f")
		w.moves("f", "truncate up", func() { w.do("truncate", unix.Truncate(w.p("f"), big)) })
		w.whole("f")
		w.moves("f", "truncate to the same", func() { w.do("truncate", unix.Truncate(w.p("f"), big)) })
		fd := w.open("f", unix.O_RDWR, 0)
		w.moves("f", "ftruncate to the same", func() { w.do("ftruncate", unix.Ftruncate(fd, big)) })
		w.do("ftruncate", unix.Ftruncate(fd, 10))
		w.do("ftruncate", unix.Ftruncate(fd, 1<<30))
		w.stat("f")
		w.read(fd, 100, 0)
		w.read(fd, 1000, 1<<30-500)
		w.do("ftruncate", unix.Ftruncate(fd, 0))
		w.whole("f")
		w.moves("g", "truncate to nothing", func() { w.do("truncate", unix.Truncate(w.p("g"), 0)) })
		w.whole("g")
		w.do("truncate", unix.Truncate(w.p("g"), big))
		w.whole("g")
		w.do("truncate up", unix.Truncate(w.p("h"), 2*big))
		w.whole("h")
		w.do("truncate a folder", unix.Truncate(w.dir, 0))
		w.do("truncate nothing", unix.Truncate(w.p("none"), 0))
	}},
	{name: "vectors", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		iov := [][]byte{mounttest.Noise(1, 10), mounttest.Noise(2, 5000), {}, mounttest.Noise(3, 70_000)}
		n, err := unix.Pwritev(fd, iov, 1234)
		w.say("pwritev %d %s", n, errnoName(err))
		n, err = unix.Writev(fd, iov)
		w.say("writev %d %s", n, errnoName(err))
		bufs := [][]byte{make([]byte, 3), make([]byte, 100_000)}
		n, err = unix.Preadv(fd, bufs, 1000)
		w.say("preadv %d %s %v", n, errnoName(err), bufs[0])
		n, err = unix.Readv(fd, bufs)
		w.say("readv %d %s %v", n, errnoName(err), bufs[0])
		for _, flags := range []int{unix.RWF_APPEND, unix.RWF_DSYNC, unix.RWF_SYNC, 0, 1 << 20} {
			n, err = unix.Pwritev2(fd, iov, 777, flags)
			w.say("pwritev2 %#x %d %s", flags, n, errnoName(err))
		}
		n, err = unix.Preadv2(fd, bufs, 777, 0)
		w.say("preadv2 %d %s %v", n, errnoName(err), bufs[0])
		w.whole("f")
	}},
	{name: "O_SYNC", prepare: usual, run: func(w *world) {
		for i, flags := range []int{unix.O_SYNC, unix.O_DSYNC} {
			fd := w.open("f", unix.O_RDWR|flags, 0)
			w.write(fd, mounttest.Noise(uint64(i), 5000), int64(i)*100_000)
			w.moves("f", "a synchronous write", func() { w.write(fd, mounttest.Noise(9, 100), 5) })
			w.read(fd, 6000, int64(i)*100_000)
			fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			w.say("getfl %#o %s", fl&^unix.O_LARGEFILE, errnoName(err))
		}
		w.whole("f")
	}},
	{name: "O_DIRECT", prepare: func(w *world) { w.file("f", mounttest.Noise(1, 80*4096)) },
		run: func(w *world) {
			fd := w.open("f", unix.O_RDWR|unix.O_DIRECT, 0)
			b := aligned(16384)
			n, err := unix.Pread(fd, b, 8192)
			w.say("read %d %s %v", n, errnoName(err), b[:4])
			copy(b, mounttest.Noise(7, len(b)))
			n, err = unix.Pwrite(fd, b, 40960)
			w.say("write %d %s", n, errnoName(err))
			n, err = unix.Pwrite(fd, b, 80*4096)
			w.say("write at the end %d %s", n, errnoName(err))
			n, err = unix.Pread(fd, b, 84*4096)
			w.say("read at the end %d %s", n, errnoName(err))
			n, err = unix.Pread(fd, b, 82*4096)
			w.say("read over the end %d %s", n, errnoName(err))
			through := w.open("f", unix.O_RDWR, 0)
			w.read(through, 16384, 40960)
			w.write(through, mounttest.Noise(8, 4096), 45056)
			n, err = unix.Pread(fd, b, 40960)
			w.say("read %d %s %v %v", n, errnoName(err), b[:4], b[4096:4100])
			w.whole("f")
		}},
	{name: "O_DIRECT by several requests", prepare: func(w *world) { w.file("f", mounttest.Noise(1, 900*4096)) },
		run: func(w *world) {
			fd := w.open("f", unix.O_RDWR|unix.O_DIRECT, 0)
			b := aligned(1000 * 4096)
			read := func(at int64, pages int) {
				clear(b)
				n, err := unix.Pread(fd, b[:pages*4096], at)
				w.say("read %d of %d pages at %d: %s %x", n, pages, at, errnoName(err), sha256.Sum256(b))
			}
			write := func(at int64, pages int) {
				copy(b, mounttest.Noise(uint64(at), pages*4096))
				n, err := unix.Pwrite(fd, b[:pages*4096], at)
				w.say("write %d of %d pages at %d: %s", n, pages, at, errnoName(err))
			}
			read(0, 900)
			read(100*4096, 1000) // over the end
			read(900*4096, 300)
			write(200*4096, 600)
			read(0, 1000)
			write(700*4096, 500) // over the end
			read(300*4096, 1000)
			w.whole("f")
		}},
	{name: "O_DIRECT unaligned", prepare: func(w *world) { w.file("f", mounttest.Noise(1, 80*4096)) }, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR|unix.O_DIRECT, 0)
		b := aligned(16384)
		n, err := unix.Pread(fd, b[:1000], 0)
		w.say("read of an odd length %d %s", n, errnoName(err))
		n, err = unix.Pread(fd, b[:4096], 100)
		w.say("read at an odd place %d %s", n, errnoName(err))
		n, err = unix.Pwrite(fd, mounttest.Noise(1, 100), 0)
		w.say("write of an odd length %d %s", n, errnoName(err))
	}},
	{name: "sendfile", prepare: func(w *world) { usual(w); w.file("g", mounttest.Noise(2, big)) },
		run: func(w *world) {
			in, out := w.open("f", unix.O_RDONLY, 0), w.open("g", unix.O_WRONLY, 0)
			off := int64(1000)
			for range 3 {
				n, err := unix.Sendfile(out, in, &off, 100_000)
				// less than was asked for is no error, and happens while pages are on their way
				for n > 0 && n < 100_000 {
					var k int
					if k, err = unix.Sendfile(out, in, &off, 100_000-n); k <= 0 {
						break
					}
					n += k
				}
				w.say("sendfile %d %s, at %d", n, errnoName(err), off)
			}
			off = big
			n, err := unix.Sendfile(out, in, &off, 100)
			w.say("at the end %d %s", n, errnoName(err))
			w.whole("g")
			a, b := net.Pipe()
			_ = a.Close()
			_ = b.Close()
			// To a socket, as a server does.
			l, err := net.Listen("tcp", "127.0.0.1:0")
			w.need(err)
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err == nil {
					f, _ := os.Open(w.p("g"))
					_, _ = io.Copy(c, f)
					f.Close()
					c.Close()
				}
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			w.need(err)
			defer c.Close()
			all, err := io.ReadAll(c)
			w.say("over a socket %d %s", len(all), errnoName(err))
		}},
	{name: "splice", prepare: func(w *world) { usual(w); w.file("g", mounttest.Noise(2, big)) },
		run: func(w *world) {
			var p [2]int
			w.need(unix.Pipe2(p[:], unix.O_CLOEXEC))
			defer unix.Close(p[0])
			defer unix.Close(p[1])
			in, out := w.open("f", unix.O_RDONLY, 0), w.open("g", unix.O_RDWR, 0)
			from, to, moved := int64(3000), int64(50_000), int64(0)
			for moved < 200_000 { // how much goes at once is the kernel's choice
				n, err := unix.Splice(in, &from, p[1], nil, 60_000, 0)
				if err != nil || n == 0 {
					w.say("in %d %s", n, errnoName(err))
					break
				}
				for n > 0 {
					k, err := unix.Splice(p[0], nil, out, &to, int(n), 0)
					if err != nil || k == 0 {
						w.say("out %d %s", k, errnoName(err))
						return
					}
					n -= k
					moved += k
				}
			}
			app := w.open("g", unix.O_WRONLY|unix.O_APPEND, 0)
			_, _ = unix.Write(p[1], []byte("x"))
			_, err := unix.Splice(p[0], nil, app, nil, 1, 0)
			w.do("splice to an appending descriptor", err)
			b := make([]byte, big)
			n, err := unix.Pread(out, b[:200_000], 50_000)
			w.say("%d %s", n, errnoName(err))
			want := mounttest.Noise(1, big)[3000:203_000]
			w.say("right: %v", string(b[:200_000]) == string(want))
			_, err = unix.Vmsplice(p[1], []unix.Iovec{{Base: &b[0], Len: 1000}}, 0)
			w.do("vmsplice", err)
			to = 10
			k, err := unix.Splice(p[0], nil, out, &to, 1000, 0)
			w.say("%d %s", k, errnoName(err))
		}},
	{name: "advice", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		for advice := range 8 {
			w.do(fmt.Sprint("fadvise ", advice), unix.Fadvise(fd, 1000, 100_000, advice))
		}
		_, _, e := unix.Syscall(unix.SYS_READAHEAD, uintptr(fd), 0, 100_000)
		w.say("readahead %s", errnoName(errnoOf(e)))
		w.do("sync_file_range", unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE))
		w.whole("f")
	}},
}

func errnoOf(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}
