// Command codec measures what chunks are stored as: size in per cent of raw, and GB/s, beside other programs
// on the same bytes in the same run, and beside the order-0 entropy of the byte planes, which is the limit of
// coding bytes one by one.
//
//	go run ./integration/bench/codec -data FOLDER [-rounds 3] [-sets REGEX] [-peers ""]
//
// `make bench-codec` makes the data first (integration/programs/codec_data.py) and sees to the other
// programs.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"ckptfs/cas/codec"
	"ckptfs/cas/simd"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// set is one data set: the tensors of a file, alone or against those of another.
type set struct {
	Name, File string
	Base       *string
}

// tensor is its bytes, and those of the tensor that it may be encoded against.
type tensor struct {
	raw, base []byte
	hint      codec.Hint
	cols      int // of a matrix, or what is stored as one
}

// figure is what one program came to on one set.
type figure struct {
	Set, Peer      string
	Size           float64  // share of raw
	Encode, Decode *float64 // GB/s of raw, one core
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "codec:", err)
		os.Exit(1)
	}
}

func run() error {
	data := flag.String("data", "", "the folder that codec_data.py made")
	rounds := flag.Int("rounds", 3, "times that each is timed; the best counts")
	only := flag.String("sets", "", "a regular expression: the sets whose names it matches")
	peers := flag.String("peers", "integration/programs/codec_peers.py", "the program that runs the others; empty: none")
	flag.Parse()
	if err := simd.Check(); err != nil {
		return err
	}
	fmt.Printf("%d cores, %s\n", runtime.NumCPU(), simd.Now())
	var sets []set
	p, err := os.ReadFile(filepath.Join(*data, "sets.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(p, &sets); err != nil {
		return err
	}
	which, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	sets = slices.DeleteFunc(sets, func(s set) bool { return !which.MatchString(s.Name) })
	ours := map[string]result{}
	for _, s := range sets {
		ts, err := read(*data, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if ours[s.Name], err = measure(ts, *rounds); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	var others []figure
	if *peers != "" {
		if others, err = runPeers(*peers, *data, *rounds); err != nil {
			return err
		}
	}
	report(sets, ours, others)
	return nil
}

// read is the tensors of a set, in the file's order.
func read(folder string, s set) ([]tensor, error) {
	own, p, err := parse(filepath.Join(folder, s.File))
	if err != nil {
		return nil, err
	}
	var base *formats.Layout
	var q []byte
	if s.Base != nil {
		if base, q, err = parse(filepath.Join(folder, *s.Base)); err != nil {
			return nil, err
		}
	}
	var ts []tensor
	for i := range own.Tensors {
		t := &own.Tensors[i]
		if t.NumBytes() == 0 {
			continue
		}
		one := tensor{raw: part(own, t, p), hint: codec.Hint{DType: string(t.DType),
			Elem: t.DType.Bits() / 8}}
		if len(t.Shape) > 1 && t.Shape[0] > 0 {
			one.cols = len(one.raw) / one.hint.Elem / int(t.Shape[0])
		}
		if base != nil {
			k := slices.IndexFunc(base.Tensors, func(b formats.Tensor) bool { return b.Name == t.Name })
			if k < 0 {
				return nil, fmt.Errorf("the base has no tensor %q", t.Name)
			}
			one.base = part(base, &base.Tensors[k], q)
		}
		ts = append(ts, one)
	}
	return ts, nil
}

func parse(path string) (*formats.Layout, []byte, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	l, err := safetensors.Parser{}.Parse(bytes.NewReader(p), int64(len(p)))
	return l, p, err
}

func part(l *formats.Layout, t *formats.Tensor, p []byte) []byte {
	off := l.Regions[t.Region].Off + t.Offset
	return p[off : off+t.NumBytes()]
}

// runPeers runs the others; their words go to standard error.
func runPeers(program, data string, rounds int) ([]figure, error) {
	python := os.Getenv("CKPTFS_PYTHON")
	if python == "" {
		python = "python3"
	}
	cmd := exec.Command(python, program, data, fmt.Sprint(rounds))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	var all []figure
	for in := bufio.NewScanner(bytes.NewReader(out)); in.Scan(); {
		if !strings.HasPrefix(in.Text(), "{") {
			continue // some of them have more to say
		}
		var f figure
		if err := json.Unmarshal(in.Bytes(), &f); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
