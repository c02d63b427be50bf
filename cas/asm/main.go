// Generates the kernels of one package, which -pkg names:
//
//	cd cas/asm && for p in codec half lowrank quant rans; do
//		go run . -pkg $p -out ../$p/kernels_generated_amd64.s -stubs ../$p/kernels_generated_amd64.go
//	done
//
// The kernels in SSE2 run on every amd64 processor. Whether those in AVX2 and AVX-512 run is asked at run
// time (package simd).
package main

import (
	"flag"
	"log"
	"strings"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	flag.Parse()
	switch pkg := flag.Lookup("pkg").Value.String(); pkg {
	case "codec":
		splitSSE()
		deltaSSE()
		ones()
		bitmaps()
		union()
		bitmapsAVX2()
		unionAVX2()
		groupOf(2)
		groupOf(4)
		groups()
		groupsAVX2()
		wide(2)
		wide(4)
		splitAVX2(2)
		splitAVX2(4)
		splitAVX2(8)
	case "half":
		round()
		roundAVX2()
		widenBF16()
	case "lowrank":
		lowRank()
		lowRankAVX2()
	case "quant":
		quantKernels()
	case "rans":
		ransTable()
		ransTableAVX2()
		for _, vectors := range []int{1, 2, 4} {
			for _, loads := range []bool{false, true} {
				ransDecode(vectors, loads)
				ransEncode(vectors, false, loads)
			}
			ransDecodeAVX2(2 * vectors)
			ransEncodeAVX2(2 * vectors)
		}
		ransEncode(4, true, false)
		counts()
		countsAVX2()
		shares()
		values()
	default:
		log.Fatalf("no kernels of package %q", pkg)
	}
	Generate()
}

// comment is Doc with lines of 110 columns.
func comment(text ...string) {
	var lines []string
	line := "//"
	for _, word := range strings.Fields(strings.Join(text, " ")) {
		if len(line)+1+len(word) > 110 {
			lines = append(lines, line[len("// "):])
			line = "//"
		}
		line += " " + word
	}
	Doc(append(lines, line[len("// "):])...)
}
