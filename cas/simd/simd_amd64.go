package simd

import "golang.org/x/sys/cpu"

// detect asks the processor, and whether the operating system saves its registers. The level of AVX-512 asks
// for VBMI2, since processors that came before it clock down for wide registers.
func detect() []Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasBMI1 || !x.HasBMI2 || !x.HasPOPCNT:
		return []Level{Portable}
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512VL && x.HasAVX512VBMI &&
		x.HasAVX512VBMI2:
		return []Level{Portable, AVX2, AVX512}
	}
	return []Level{Portable, AVX2}
}
