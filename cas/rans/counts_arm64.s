#include "textflag.h"

// ADDROW adds the next eight tallies to V8 and V9.
#define ADDROW() \
	VLD1 (R7), [V0.H8]; \
	ADD $512, R7; \
	VUXTL V0.H4, V1.S4; \
	VUXTL2 V0.H8, V2.S4; \
	VADD V1.S4, V8.S4, V8.S4; \
	VADD V2.S4, V9.S4, V9.S4

// LOOK sets the bytes of v that are in the set to ones, and the others to zeros. t is lost.
#define LOOK(v, t) \
	VUSHR $3, v.B16, t.B16; \
	VTBL t.B16, [V16.B16, V17.B16], t.B16; \
	VAND V19.B16, v.B16, v.B16; \
	VTBL v.B16, [V18.B16], v.B16; \
	VCMTST t.B16, v.B16, v.B16

// func sumNEON(c *uint32, t *uint16, shift uint64, set *uint64)
TEXT ·sumNEON(SB), NOSPLIT, $0-32
	MOVD c+0(FP), R0
	MOVD t+8(FP), R1
	MOVD shift+16(FP), R2
	MOVD set+24(FP), R3
	MOVD $0x0008000400020001, R4
	VMOV R4, V31.D[0]
	MOVD $0x0080004000200010, R4
	VMOV R4, V31.D[1]
	MOVD $32, R5

values:
	MOVD R1, R7
	VEOR V8.B16, V8.B16, V8.B16
	VEOR V9.B16, V9.B16, V9.B16
	ADDROW()
	ADDROW()
	ADDROW()
	ADDROW()
	ADDROW()
	ADDROW()
	ADDROW()
	ADDROW()
	VCMTST V8.S4, V8.S4, V10.S4
	VCMTST V9.S4, V9.S4, V11.S4
	VUZP1 V11.H8, V10.H8, V10.H8
	VAND V31.B16, V10.B16, V10.B16
	VADDV V10.H8, V10
	VMOV V10.H[0], R6
	MOVB.P R6, 1(R3)
	MOVD R2, R6
	CBZ R6, store

double:
	VADD V8.S4, V8.S4, V8.S4
	VADD V9.S4, V9.S4, V9.S4
	SUB $1, R6
	CBNZ R6, double

store:
	VST1.P [V8.S4, V9.S4], 32(R0)
	ADD $16, R1
	SUB $1, R5
	CBNZ R5, values
	RET

// A value's byte of the set comes of one table of 32 bytes, its bit of another.
//
// func holdsNEON(set *uint64, p *byte, lines int) (left int)
TEXT ·holdsNEON(SB), NOSPLIT, $0-32
	MOVD set+0(FP), R0
	MOVD p+8(FP), R1
	MOVD lines+16(FP), R2
	VLD1 (R0), [V16.B16, V17.B16]
	MOVD $0x8040201008040201, R3
	VDUP R3, V18.D2
	MOVD $7, R3
	VDUP R3, V19.B16

next:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	LOOK(V0, V4)
	LOOK(V1, V5)
	LOOK(V2, V6)
	LOOK(V3, V7)
	VAND V1.B16, V0.B16, V0.B16
	VAND V3.B16, V2.B16, V2.B16
	VAND V2.B16, V0.B16, V0.B16
	VMOV V0.D[0], R4
	VMOV V0.D[1], R5
	AND R5, R4
	ADDS $1, R4
	BNE done
	SUB $1, R2
	CBNZ R2, next

done:
	MOVD R2, left+24(FP)
	RET
