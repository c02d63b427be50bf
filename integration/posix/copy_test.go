package posix

import (
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

func (w *world) copyRange(in, out int, from, to int64, n int) {
	a, b, total := from, to, 0
	for total < n { // short counts are allowed
		k, err := unix.CopyFileRange(in, &a, out, &b, n-total, 0)
		if err != nil {
			w.say("copy %d %d→%d: after %d %s", n, from, to, total, errnoName(err))
			return
		}
		if k == 0 {
			break
		}
		total += k
	}
	w.say("copy %d %d→%d: %d", n, from, to, total)
}

var copyCases = []posixCase{
	{name: "copy_file_range", prepare: func(w *world) {
		usual(w)
		w.file("g", mounttest.Noise(2, big))
		w.file("small", mounttest.Noise(3, 5000))
	}, run: func(w *world) {
		f, g := w.open("f", unix.O_RDWR, 0), w.open("g", unix.O_RDWR, 0)
		w.copyRange(f, g, 100, 200, 50_000)
		w.whole("g")
		w.copyRange(f, g, 0, big, big) // appends
		w.whole("g")
		w.copyRange(f, g, 0, 3*big, 1000) // leaves a hole
		w.whole("g")
		w.copyRange(f, g, big-10, 0, 100) // over the end
		w.copyRange(f, g, big, 0, 100)    // past it
		w.copyRange(f, g, 10*big, 0, 100)
		w.copyRange(f, g, -1, 0, 100)
		w.copyRange(f, g, 0, -1, 100)
		w.copyRange(f, f, 0, 100_000, 100_000) // within
		w.whole("f")
		w.moves("g", "a copy to it", func() { w.copyRange(f, g, 0, 0, 10) })
		_, err := unix.CopyFileRange(f, nil, g, nil, 0, 0)
		w.do("of nothing", err)
		_, err = unix.CopyFileRange(f, nil, g, nil, 100, 1)
		w.do("with a flag", err)
		small := w.open("small", unix.O_RDWR, 0)
		w.copyRange(small, f, 0, 7, 5000)
		w.whole("f")
		w.file("new", nil)
		n := w.open("new", unix.O_RDWR, 0)
		w.copyRange(f, n, 0, 0, big)
		w.whole("new")
		w.extents(n)
	}},
	{name: "copy_file_range refused", prepare: func(w *world) {
		usual(w)
		w.file("g",
			mounttest.Noise(2, big))
	}, run: func(w *world) {
		f, g := w.open("f", unix.O_RDWR, 0), w.open("g", unix.O_RDWR, 0)
		ro, wo, app := w.open("f", unix.O_RDONLY, 0), w.open("g", unix.O_WRONLY, 0),
			w.open("g", unix.O_WRONLY|unix.O_APPEND, 0)
		dir := w.open(".", unix.O_RDONLY, 0)
		w.copyRange(f, ro, 0, 100_000, 100)
		w.copyRange(wo, f, 0, 0, 100)
		w.copyRange(f, app, 0, 0, 100)
		w.copyRange(f, f, 0, 50_000, 100_000) // overlapping
		w.copyRange(f, f, 0, 0, 100)
		w.copyRange(dir, g, 0, 0, 100)
		w.copyRange(f, dir, 0, 0, 100)
		w.whole("f")
		w.whole("g")
	}},
	{name: "copy of blocks", prepare: func(w *world) {
		w.file("f", mounttest.Noise(1, 2<<20))
		w.file("g", mounttest.Noise(2, 2<<20))
	}, run: func(w *world) {
		f, g := w.open("f", unix.O_RDONLY, 0), w.open("g", unix.O_RDWR, 0)
		w.copyRange(f, g, 256<<10, 512<<10, 1<<20)
		w.whole("g")
		w.write(g, []byte("after it"), 600<<10)
		w.whole("g")
		w.whole("f")
	}},
	{name: "copy of dirty maps", prepare: func(w *world) {
		w.file("f", mounttest.Noise(1, 1<<20))
		w.file("g", mounttest.Noise(2, 1<<20))
	}, run: func(w *world) {
		f, g := w.open("f", unix.O_RDWR, 0), w.open("g", unix.O_RDWR, 0)
		fm, err := unix.Mmap(f, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		gm, err := unix.Mmap(g, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		for i := 0; i < 1<<20; i += 1000 {
			fm[i], gm[i] = 'f', 'g'
		}
		// Neither what is to be copied nor what stays beside it may be lost.
		for i, r := range [][3]int64{{100, 5000, 10_000}, {200_000, 300_001, 4096},
			{512 << 10, 600_000, 100_000}} {
			gm[r[1]-1], gm[r[1]+r[2]] = byte(i), byte(i)
			w.copyRange(f, g, r[0], r[1], int(r[2]))
			w.say("beside it %d %d", gm[r[1]-1], gm[r[1]+r[2]])
		}
		w.whole("g")
		w.do("munmap", unix.Munmap(fm))
		w.do("munmap", unix.Munmap(gm))
		w.whole("f")
		w.whole("g")
	}},
	{name: "clone", prepare: func(w *world) { w.file("f", mounttest.Noise(1, 1<<20)) }, run: func(w *world) {
		w.file("g", nil)
		f, g := w.open("f", unix.O_RDONLY, 0), w.open("g", unix.O_RDWR, 0)
		w.do("FICLONE", unix.IoctlFileClone(g, f))
		w.do("FICLONERANGE", unix.IoctlFileCloneRange(g, &unix.FileCloneRange{Src_fd: int64(f),
			Src_length: 4096}))
	}},
}

var mapCases = []posixCase{
	{name: "shared map", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		m, err := unix.Mmap(fd, 0, big, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		w.say("%v", m[1000:1010])
		copy(m[1000:], "by the map")
		w.read(fd, 100, 950)
		w.write(fd, []byte("by write"), 5000)
		w.say("%s", m[5000:5008])
		w.do("msync", unix.Msync(m, unix.MS_SYNC))
		w.do("msync async", unix.Msync(m, unix.MS_ASYNC))
		w.do("msync invalidate", unix.Msync(m, unix.MS_SYNC|unix.MS_INVALIDATE))
		w.close(fd)
		copy(m[200_000:], "after the close")
		w.whole("f")
		w.do("msync", unix.Msync(m, unix.MS_SYNC))
		w.do("munmap", unix.Munmap(m))
		w.whole("f")
	}},
	{name: "map and times", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		m, err := unix.Mmap(fd, 0, big, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		w.moves("f", "a write through a map", func() { m[100] = 1; w.do("msync", unix.Msync(m, unix.MS_SYNC)) })
		w.close(fd)
		w.moves("f", "another, after the close", func() { m[100_000] = 1; w.do("msync", unix.Msync(m, unix.MS_SYNC)) })
		w.do("munmap", unix.Munmap(m))
		w.whole("f")
	}},
	{name: "private map", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDONLY, 0)
		m, err := unix.Mmap(fd, 4096, big-4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		w.need(err)
		copy(m, "for me alone")
		w.whole("f")
		w.do("munmap", unix.Munmap(m))
	}},
	{name: "map and truncate", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		m, err := unix.Mmap(fd, 0, big, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		m[8192] = 1
		w.do("ftruncate", unix.Ftruncate(fd, 4096+100))
		w.say("%v", m[4096+100:4096+104]) // the rest of the last page is zero
		m[4096+200] = 7                   // and not part of the file
		w.do("ftruncate", unix.Ftruncate(fd, big))
		w.say("%v", m[4096+200])
		w.say("%v", m[8192:8194])
		copy(m[100_000:], "again")
		w.do("munmap", unix.Munmap(m))
		w.whole("f")
	}},
	{name: "map of what is gone", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		m, err := unix.Mmap(fd, 0, big, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		w.close(fd)
		w.do("unlink", unix.Unlink(w.p("f")))
		w.say("%v", m[big-4:big])
		copy(m[500:], "x")
		w.file("f", mounttest.Noise(9, 1000))
		w.say("%v", m[200_000:200_004])
		w.do("msync", unix.Msync(m, unix.MS_SYNC))
		w.do("munmap", unix.Munmap(m))
		w.whole("f")
	}},
	{name: "two maps", prepare: usual, run: func(w *world) {
		a, b := w.open("f", unix.O_RDWR, 0), w.open("f", unix.O_RDONLY, 0)
		x, err := unix.Mmap(a, 0, big, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		y, err := unix.Mmap(b, 0, big, unix.PROT_READ, unix.MAP_SHARED)
		w.need(err)
		for i := range 20 {
			copy(x[i*15_000:], fmt.Sprint("number ", i))
			w.say("%s", y[i*15_000:i*15_000+8])
		}
		w.do("munmap", unix.Munmap(x))
		w.say("%s", y[15_000:15_008])
		w.do("munmap", unix.Munmap(y))
		w.whole("f")
	}},
	{name: "advice on maps", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		m, err := unix.Mmap(fd, 0, big, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.need(err)
		m[5000] = 5
		for _, a := range []int{unix.MADV_WILLNEED, unix.MADV_SEQUENTIAL, unix.MADV_RANDOM,
			unix.MADV_DONTNEED, unix.MADV_POPULATE_READ, unix.MADV_POPULATE_WRITE} {
			w.do(fmt.Sprint("madvise ", a), unix.Madvise(m, a))
		}
		w.do("mlock", unix.Mlock(m[:8192]))
		w.do("madvise remove", unix.Madvise(m[8192*2:8192*4], unix.MADV_REMOVE))
		w.say("%v", m[8192*3:8192*3+4])
		w.do("munlock", unix.Munlock(m[:8192]))
		w.do("munmap", unix.Munmap(m))
		w.whole("f")
	}},
}
