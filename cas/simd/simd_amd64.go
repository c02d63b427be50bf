package simd

import "golang.org/x/sys/cpu"

// Wide reports whether the kernels in AVX-512 run and pay: processors with VBMI2 do not clock down for them.
// Only tests set it, to compare kernels with twins (codectest.Both).
var Wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL &&
	cpu.X86.HasAVX512CD && cpu.X86.HasAVX512VBMI && cpu.X86.HasAVX512VBMI2 &&
	cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT
