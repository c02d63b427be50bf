package simd

// detect need not ask: ARMv8, which is what Go compiles for, has NEON.
func detect() []Level { return []Level{Portable, NEON} }
