// Package simd says which kernels this processor runs.
//
// A package with kernels has each of their functions in Go as well: its twin, which gives the same bytes. A
// kernel takes whole blocks; the twin takes the rest, and everything where no kernel runs.
//
//	level     instructions                              processors
//	portable  Go; on amd64 SSE2                         all
//	neon      NEON (Advanced SIMD)                      all of arm64
//	avx2      AVX2, FMA, BMI1 and BMI2, POPCNT          Intel from Haswell on, AMD from Zen on
//	avx512    also AVX-512 F, BW, CD, VL, VBMI, VBMI2   Intel from Ice Lake on, AMD from Zen 4 on
//
// A level of amd64 includes those of amd64 above it in the table. The environment variable CKPTFS_CPU names
// the highest level to use, for tests and reports.
package simd

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Level is a set of instructions.
type Level uint8

// The levels. Each of amd64 includes the ones of amd64 before it.
const (
	Portable Level = iota
	NEON
	AVX2
	AVX512
)

var names = [...]string{"portable", "neon", "avx2", "avx512"}

func (l Level) String() string { return names[l] }

// Env is the environment variable that names the highest level to use.
const Env = "CKPTFS_CPU"

// host are the levels that this processor has, the highest last.
var host = detect()

// now is the level whose kernels run, and problem what is wrong with the one that Env names.
var now, problem = limit(host, os.Getenv(Env))

// Now is the level whose kernels run.
func Now() Level { return now }

// Has reports whether kernels of level l run.
func Has(l Level) bool { return now >= l }

// Widest is the kernel of the two that runs, where one does.
func Widest[F any](avx2, avx512 F) F {
	if now >= AVX512 {
		return avx512
	}
	return avx2
}

// Check is the error of Env: a level that does not exist, or that this processor lacks.
func Check() error { return problem }

// limit is the level that name asks for. An empty name asks for the highest of the host's.
func limit(host []Level, name string) (Level, error) {
	top := host[len(host)-1]
	if name == "" {
		return top, nil
	}
	has := make([]string, len(host))
	for i, l := range host {
		if has[i] = l.String(); has[i] == name {
			return l, nil
		}
	}
	why := "no level is called so"
	if slices.Contains(names[:], name) {
		why = "this processor does not have it"
	}
	return top, fmt.Errorf("%s=%s: %s; unset %[1]s, or take one of %[4]s", Env, name, why, strings.Join(has, ", "))
}

// Each runs f at each level that this processor has, the highest first. Only tests call it, one at a time.
func Each(f func(l Level)) {
	defer func(was Level) { now = was }(now)
	for _, l := range slices.Backward(host[:slices.Index(host, now)+1]) {
		now = l
		f(now)
	}
}

// Block is how many bytes most kernels take at a time.
const Block = 64

// Blocks is how many whole blocks of n bytes a kernel of level l takes: none where it does not run.
func Blocks(l Level, n int) int {
	if now < l {
		return 0
	}
	return n / Block
}
