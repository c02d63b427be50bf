package posix

import (
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// extents says where a file has data, as SEEK_DATA and SEEK_HOLE tell.
func (w *world) extents(fd int) {
	line, off := "", int64(0)
	for range 100 {
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if err != nil {
			line += " " + errnoName(err)
			break
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			line += " " + errnoName(err)
			break
		}
		line += fmt.Sprintf(" [%d,%d)", data, hole)
		off = hole
	}
	w.say("data:%s", line)
}

// holey makes a file of 4 MiB with data at both ends and in the middle.
func holey(w *world) {
	w.file("f", mounttest.Noise(1, 1<<20))
	fd, err := unix.Open(w.p("f"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	w.need(err)
	defer unix.Close(fd)
	for i, off := range []int64{2 << 20, 4<<20 - 8192} {
		_, err := unix.Pwrite(fd, mounttest.Noise(uint64(i), 8192), off)
		w.need(err)
	}
}

var spaceCases = []posixCase{
	{name: "fallocate", prepare: func(w *world) {
		for _, mode := range allocateModes {
			w.file(fmt.Sprintf("f%d", mode), mounttest.Noise(uint64(mode), big))
		}
	}, run: func(w *world) {
		for _, mode := range allocateModes {
			name := fmt.Sprintf("f%d", mode)
			fd := w.open(name, unix.O_RDWR, 0)
			for _, r := range [][2]int64{{4096, 8192}, {100_001, 5}, {0, 4096}, {big - 100, 10_000},
				{big + 50_000, 4096}, {0, 0}, {-1, 10}, {10, -1}} {
				w.moves(name, "fallocate", func() {
					w.do(fmt.Sprint("fallocate ", mode, r), unix.Fallocate(fd, mode, r[0], r[1]))
				})
				w.fstat(fd)
			}
			w.whole(name)
		}
		w.do("of a folder", unix.Fallocate(w.open(".", unix.O_RDONLY, 0), 0, 0, 10))
	}},
	{name: "collapse and insert", prepare: func(w *world) { w.file("f", mounttest.Noise(1, 80*4096)) }, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		w.do("collapse", unix.Fallocate(fd, unix.FALLOC_FL_COLLAPSE_RANGE, 8192, 4096))
		w.do("insert", unix.Fallocate(fd, unix.FALLOC_FL_INSERT_RANGE, 4096, 8192))
		w.whole("f")
	}},
	{name: "reserved", run: func(w *world) {
		w.file("f", nil)
		fd := w.open("f", unix.O_RDWR, 0)
		w.do("fallocate", unix.Fallocate(fd, 0, 0, 1<<20))
		st := w.fstat(fd)
		w.say("blocks %v", st.Blocks >= 2048)
		w.read(fd, 5000, 1000)
		w.do("keep size", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 1<<20, 1<<20))
		st = w.fstat(fd)
		w.say("blocks %v", st.Blocks >= 4096)
		w.do("punch", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 2<<20))
		st = w.fstat(fd)
		w.say("blocks %v", st.Blocks <= 64)
	}},
	{name: "holes", prepare: holey, run: func(w *world) {
		fd := w.open("f", unix.O_RDONLY, 0)
		w.extents(fd)
		for _, off := range []int64{0, 100, 1<<20 - 1, 1 << 20, 2<<20 + 5, 4<<20 - 1, 4 << 20, 5 << 20, -1} {
			for _, whence := range []int{unix.SEEK_DATA, unix.SEEK_HOLE} {
				at, err := unix.Seek(fd, off, whence)
				w.say("seek %d %d: %d %s", off, whence, at, errnoName(err))
			}
		}
		w.read(fd, 3<<20, 1<<20-10)
		w.whole("f")
		st := w.fstat(fd)
		w.say("takes less than its size: %v", st.Blocks*512 < 3<<20)
	}},
	{name: "holes punched", prepare: func(w *world) { w.file("f", mounttest.Noise(1, 2<<20)) },
		run: func(w *world) {
			fd := w.open("f", unix.O_RDWR, 0)
			w.do("punch",
				unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 512<<10, 1<<20))
			w.extents(fd)
			w.read(fd, 1<<20, 300<<10)
			st := w.fstat(fd)
			w.say("takes less: %v", st.Blocks*512 <= 1<<20+16384)
			w.write(fd, []byte("in the hole"), 1<<20)
			w.extents(fd)
			w.whole("f")
		}},
	{name: "a hole at the end", prepare: func(w *world) {
		w.file("f", mounttest.Noise(1, 1<<20))
		w.need(unix.Truncate(w.p("f"), 3<<20))
	}, run: func(w *world) {
		fd := w.open("f", unix.O_RDONLY, 0)
		w.extents(fd)
		st := w.fstat(fd)
		w.say("takes less than its size: %v", st.Blocks*512 < 2<<20)
		w.whole("f")
	}},
	{name: "only holes", prepare: func(w *world) {
		w.file("f", nil)
		w.need(unix.Truncate(w.p("f"), 100<<20))
	}, run: func(w *world) {
		fd := w.open("f", unix.O_RDONLY, 0)
		w.extents(fd)
		st := w.fstat(fd)
		w.say("blocks %v", st.Blocks < 64)
		w.read(fd, 1000, 50<<20)
	}},
	{name: "blocks", prepare: usual, run: func(w *world) {
		w.file("small", []byte("x"))
		w.need(unix.Mkdir(w.p("d"), 0o755))
		for _, n := range []string{"f", "small", "d"} {
			st := w.stat(n)
			w.say("%s takes about its size: %v", n, st.Blocks*512 >= st.Size && st.Blocks*512 <= st.Size+64<<10)
			var dir unix.Stat_t
			w.need(unix.Stat(w.dir, &dir))
			w.say("on one disk: %v, number %v", st.Dev == dir.Dev && st.Dev != 0, st.Ino != 0)
		}
	}},
	{name: "statfs", run: func(w *world) {
		var st unix.Statfs_t
		w.do("statfs", unix.Statfs(w.dir, &st))
		w.say("bsize %d frsize %d names %d, blocks %d", st.Bsize, st.Frsize, st.Namelen, st.Blocks)
		w.say("free %v, files %v", st.Bfree > 0 && st.Bavail <= st.Bfree, st.Files >= st.Ffree)
		w.file("f", nil)
		fd := w.open("f", unix.O_RDONLY, 0)
		w.do("fstatfs", unix.Fstatfs(fd, &st))
		w.say("bsize %d", st.Bsize)
		w.do("statfs of nothing", unix.Statfs(w.p("none"), &st))
	}},
}

var allocateModes = []uint32{
	0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
	unix.FALLOC_FL_PUNCH_HOLE,
	unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE,
	unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_ZERO_RANGE,
}
