// Package setup is how the torture programs begin and end: their common flags, the folder that they work in,
// the program under test, and their exit status.
package setup

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ckptfs/integration/daemon"
)

// Options say what is run, where, and for how long.
type Options struct {
	Bin  string
	Dir  string
	Seed uint64
	Time time.Duration
}

// Flags defines the flags of the options.
func (o *Options) Flags() {
	flag.StringVar(&o.Bin, "bin", "", "the program under test; built from the module if empty")
	flag.StringVar(&o.Dir, "dir", "", "folder to work in, on a plain filesystem; a temporary one if empty")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()),
		"what is done, and when, as far as the scheduler lets it")
	flag.DurationVar(&o.Time, "time", time.Minute, "how long")
}

// Environ reads what changes a run that a test makes: CKPTFS_TORTURE_TIME and CKPTFS_TORTURE_SEED. timed
// reports whether the first is there.
func (o *Options) Environ() (timed bool, err error) {
	if s := os.Getenv("CKPTFS_TORTURE_TIME"); s != "" {
		if o.Time, err = time.ParseDuration(s); err != nil {
			return false, err
		}
		timed = true
	}
	if s := os.Getenv("CKPTFS_TORTURE_SEED"); s != "" {
		o.Seed, err = strconv.ParseUint(s, 10, 64)
	}
	return timed, err
}

// Fill makes what was left out. temp is how the name of a temporary folder begins.
func (o *Options) Fill(temp string) (err error) {
	if o.Dir == "" {
		o.Dir, err = os.MkdirTemp("", temp)
	} else {
		err = os.MkdirAll(o.Dir, 0o755)
	}
	if err != nil {
		return err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	if o.Bin != "" {
		o.Bin, err = filepath.Abs(o.Bin)
		return err
	}
	o.Bin = filepath.Join(o.Dir, "ckptfs")
	return daemon.Build(o.Bin, "")
}

// Main fills the options, runs, and says what the run did. The folder stays if the run failed.
func (o *Options) Main(temp string, run func() (summary string, err error)) {
	if err := o.Fill(temp); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	}
	summary, err := run()
	fmt.Println(summary)
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
	os.RemoveAll(o.Dir)
}

// Keep moves the folder out of one that is about to be removed, and returns where it is; "": it could not.
func (o *Options) Keep() string {
	kept, err := os.MkdirTemp("", "ckptfs-torture-")
	if err != nil || os.Rename(o.Dir, kept+"/run") != nil {
		return ""
	}
	return kept
}
