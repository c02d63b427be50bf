// Command remote looks for checkpoints that a remote loses. Some machines, each a store with a mount, share a
// remote on one real object store. Each saves steps, writes into steps that all share, changes names that the
// others change, too, rotates old steps, publishes and pulls. Beside that
//
//   - daemons are killed, alone or with their holders, and so are commands and the object store;
//   - a store is copied, and both copies publish;
//   - a machine's disk is lost after it published, and replaced by a clone;
//   - the collector runs with a grace of 0.
//
// A ledger outside of all mounts has what was saved, and of it what `sync --remote` acknowledged. Every so
// often all come to rest: each machine publishes and pulls, and then all mounts and a fresh clone are to show
// the same, byte for byte, and what the ledger has. Of a name that several changed every version that was
// acknowledged has to be there, or was replaced by somebody who may have seen it.
//
//	go run ./integration/torture/remote -time 20m
//
// It ends with a count of what it did, and with exit status 1 if anything was lost; then the folder with
// everything in it is kept, and it says where.
package main

import (
	"flag"
	"time"

	"ckptfs/integration/torture/setup"
)

// tempDir is how the name of a temporary folder begins.
const tempDir = "ckptfs-torture-remote-"

// options say how long and how hard.
type options struct {
	setup.Options
	rounds   int           // 0: until time is over
	round    time.Duration // between two rests
	machines int
	size     int
	verbose  bool
}

func main() {
	var o options
	o.Flags()
	flag.IntVar(&o.rounds, "rounds", 0, "at most so many rests (0: no bound)")
	flag.DurationVar(&o.round, "round", 30*time.Second, "from one rest to the next")
	flag.IntVar(&o.machines, "machines", 3, "machines")
	flag.IntVar(&o.size, "size", 1<<20, "bytes of the biggest files")
	flag.BoolVar(&o.verbose, "v", false, "say what is done")
	flag.Parse()
	o.Main(tempDir, func() (string, error) {
		r := newRun(o)
		err := r.run()
		return r.summary(), err
	})
}
