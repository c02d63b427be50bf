//go:build lockrank

#include "textflag.h"

// func goroutine() uintptr
TEXT ·goroutine(SB), NOSPLIT, $0-8
	MOVQ (TLS), R14
	MOVQ R14, ret+0(FP)
	RET
