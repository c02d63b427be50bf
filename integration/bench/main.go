// Command bench measures ckptfs against the filesystem that its store lies on, in the same run: each figure
// is taken in pairs, now one first and now the other, and is told as the median with the lowest and the
// highest.
//
//	go run ./integration/bench [-size 1G] [-rounds 5] [-only write,read,torch,dedup,resnet,clients,small,cachex,servers,storage,steps,grown,training,lineage,asking,evostore,nas,scale,recipes,serving] [-files 20000] [-dir FOLDER] [-served]
//
// It needs a built bin/ckptfs and, in CKPTFS_PYTHON, a Python with torch and safetensors; `make bench` sees
// to both. Run it on a quiet machine, with some 10 times -size free in FOLDER (default: the folder for
// temporary files).
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

type options struct {
	bin, python, programs, dir string
	size                       int64
	rounds, files              int
	only, named                []string
	processes                  []int    // how many load a model at a time
	states                     []string // in which a model is loaded; none for all
	full                       bool     // memory is full of other files' pages when a model is loaded
	flags                      []string // of ckptfs mount
}

type section struct {
	name string
	run  func(*bench) error
}

var sections = []section{
	{"write", (*bench).writes},
	{"read", (*bench).reads},
	{"torch", (*bench).torch},
	{"dedup", (*bench).dedup},
	{"resnet", (*bench).resnet},
	{"clients", (*bench).clients},
	{"small", (*bench).small},
	{"cachex", (*bench).cachex},
	{"servers", (*bench).servers},
	{"storage", (*bench).storage},
	{"steps", (*bench).steps},
	{"grown", (*bench).grown},
	{"training", (*bench).training},
	{"partial", (*bench).partial},
	{"lineage", (*bench).lineage},
	{"asking", (*bench).asking},
	{"evostore", (*bench).evostore},
	{"nas", (*bench).nas},
	{"scale", (*bench).scale},
	{"recipes", recipes},
	{"serving", serving},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	var size, only, named, processes, states string
	var served bool
	var profile string
	flag.StringVar(&size, "size", "1G", "bytes of the files that are written and read, with K, M or G")
	flag.IntVar(&o.rounds, "rounds", 5, "pairs per figure")
	flag.StringVar(&only, "only", "", "sections: write,read,torch,dedup,resnet,clients,small,cachex,servers,storage,steps,training,lineage,asking,evostore,nas,scale,recipes,serving (default all up to servers; dedup is a part of write)")
	flag.StringVar(&named, "clients", "", "which programs the section clients times, as torch_save,numpy, which series the section storage saves, which catalogues the section lineage asks, which per cents the section evostore changes, which models the section recipes stores, and which patterns the section serving runs, by their names' beginnings (default all)")
	flag.StringVar(&processes, "processes", "1,4,8",
		"how many processes load a model at a time, in the section serving")
	flag.StringVar(&states, "states", "",
		"states in which the section serving loads a model, beside ext4, by their names' beginnings (all)")
	flag.BoolVar(&o.full, "full", false, "before each load of the section serving, have other files' pages fill memory")
	flag.IntVar(&o.files, "files", 20000, "files of the store of the section scale")
	flag.StringVar(&o.dir, "dir", "", "where the store and the plain folder are made")
	flag.StringVar(&o.bin, "bin", "bin/ckptfs", "the program")
	flag.StringVar(&o.programs, "programs", "integration/programs", "the Python programs")
	flag.BoolVar(&served, "served", false, "mount with --no-passthrough")
	flag.StringVar(&profile, "cpuprofile", "", "write a profile of this program's own processor time to this file")
	flag.Parse()
	var err error
	if o.size, err = parseSize(size); err != nil {
		return err
	}
	if o.python = os.Getenv("CKPTFS_PYTHON"); o.python == "" {
		o.python = "python3"
	}
	if served {
		o.flags = append(o.flags, "--no-passthrough")
	}
	list := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
	for _, name := range list(only) {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("-only %s: no such section", name)
		}
		o.only = append(o.only, name)
	}

	o.named, o.states = list(named), list(states)
	for _, n := range list(processes) {
		k, err := strconv.Atoi(n)
		if err != nil || k < 1 {
			return fmt.Errorf("-processes %s: want numbers from 1 on", processes)
		}
		o.processes = append(o.processes, k)
	}

	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer b.close()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		b.close()
		os.Exit(130)
	}()
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, s := range sections {
		if len(o.only) == 0 && (s.name == "dedup" ||
			slices.Contains([]string{"storage", "steps", "grown", "training", "lineage", "asking", "evostore",
				"nas", "scale", "recipes", "serving"}, s.name)) ||
			len(o.only) > 0 && !slices.Contains(o.only, s.name) {
			continue
		}
		if err := s.run(b); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.name, err, b.logTail())
		}
	}
	return nil
}

func parseSize(s string) (int64, error) {
	shift := 0
	if i := strings.IndexAny(s, "KMG"); i >= 0 && i == len(s)-1 {
		shift = map[byte]int{'K': 10, 'M': 20, 'G': 30}[s[i]]
		s = s[:i]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("-size %q: want a number and K, M or G", s)
	}
	return n << shift, nil
}
