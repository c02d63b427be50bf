// Command torture looks for lost bytes. Several processes save, change, move and delete files on a real
// mount; commands run beside them; the daemon is killed at random moments. What was acknowledged is kept in a
// log outside of the mount, and after each death every file is compared with it: its bytes, size, mode,
// times, inode and links.
//
// In half of the cycles, or with -outlive in all, the daemon alone is killed as well, some times before the
// end of the cycle, and its holder starts the next one: then no operation of the writers may fail.
//
//	go run ./integration/torture -time 20m
//
// It ends with a count of what it did, and with exit status 1 if anything was lost; then the store, the log
// of operations and the daemon's log are kept, and it says where.
package main

import (
	"flag"
	"os"

	"ckptfs/integration/torture/setup"
)

// tempDir is how the name of a temporary folder begins.
const tempDir = "ckptfs-torture-"

// options say how long and how hard.
type options struct {
	setup.Options
	cycles   int // 0: until time is over
	writers  int
	files    int
	size     int
	maxStore int64
	outlive  bool
}

// asWriter in the environment makes the program one of its writer processes.
const asWriter = "CKPTFS_TORTURE_WRITER"

func main() {
	if os.Getenv(asWriter) != "" {
		os.Exit(writerMain())
	}
	var o options
	o.Flags()
	flag.IntVar(&o.cycles, "cycles", 0, "at most so many lives of the daemon (0: no bound)")
	flag.IntVar(&o.writers, "writers", 3, "writer processes")
	flag.IntVar(&o.files, "files", 24, "files of each writer, at most")
	flag.IntVar(&o.size, "size", 3<<20, "bytes of the biggest files")
	flag.Int64Var(&o.maxStore, "max-store", 3<<30, "bytes of a store before a new one replaces it")
	flag.BoolVar(&o.outlive, "outlive", false, "only kill the daemon alone, which the mount outlives")
	flag.Parse()
	o.Main(tempDir, func() (string, error) {
		r := newRun(o)
		err := r.run()
		return r.summary(), err
	})
}
