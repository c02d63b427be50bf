#include "textflag.h"

// func onesNEON(p *byte, blocks int) (n int)
TEXT ·onesNEON(SB), NOSPLIT, $0-24
	MOVD p+0(FP), R0
	MOVD blocks+8(FP), R1
	MOVD $0, R2

next:
	VLD1.P 64(R0), [V0.B16, V1.B16, V2.B16, V3.B16]
	VCNT V0.B16, V0.B16
	VCNT V1.B16, V1.B16
	VCNT V2.B16, V2.B16
	VCNT V3.B16, V3.B16
	VADD V1.B16, V0.B16, V0.B16
	VADD V3.B16, V2.B16, V2.B16
	VADD V2.B16, V0.B16, V0.B16
	VUADDLV V0.B16, V0
	VMOV V0.H[0], R3
	ADD R3, R2
	SUB $1, R1
	CBNZ R1, next
	MOVD R2, n+16(FP)
	RET

// func packNEON(dst, bitmap, src *byte, blocks int, compress *byte) (put int)
TEXT ·packNEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD bitmap+8(FP), R1
	MOVD src+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD compress+32(FP), R4
	MOVD R0, R7
	LSL $3, R3
	MOVD $0x8040201008040201, R5
	VDUP R5, V31.D2

next:
	VLD1.P 8(R2), [V0.B8]
	VCMTST V0.B8, V0.B8, V1.B8
	VAND V31.B8, V1.B8, V1.B8
	VADDV V1.B8, V1
	VMOV V1.B[0], R5
	MOVB.P R5, 1(R1)
	ADD R5<<3, R4, R6
	VLD1 (R6), [V2.B8]
	VTBL V2.B8, [V0.B16], V3.B8
	VST1 [V3.B8], (R0)
	VCNT V1.B8, V1.B8
	VMOV V1.B[0], R5
	ADD R5, R0
	SUB $1, R3
	CBNZ R3, next
	SUB R7, R0
	MOVD R0, put+40(FP)
	RET

// func unionNEON(any, zero *byte, planes **byte, n, blocks int)
TEXT ·unionNEON(SB), NOSPLIT, $0-40
	MOVD any+0(FP), R0
	MOVD zero+8(FP), R1
	MOVD planes+16(FP), R2
	MOVD n+24(FP), R3
	MOVD blocks+32(FP), R4
	LSL $6, R4
	MOVD $0, R5
	VEOR V30.B16, V30.B16, V30.B16
	MOVD $1, R6
	VDUP R6, V31.B16

next:
	VEOR V0.B16, V0.B16, V0.B16
	MOVD R2, R6
	MOVD R3, R7

plane:
	MOVD.P 8(R6), R8
	ADD R5, R8
	VLD1 (R8), [V1.B16]
	VORR V1.B16, V0.B16, V0.B16
	SUB $1, R7
	CBNZ R7, plane
	VCMEQ V30.B16, V0.B16, V1.B16
	VAND V31.B16, V1.B16, V1.B16
	VST1.P [V0.B16], 16(R0)
	VST1.P [V1.B16], 16(R1)
	ADD $16, R5
	CMP R4, R5
	BLT next
	RET

// func spreadNEON(dst, bitmap, src *byte, blocks int, expand *byte) (used int)
TEXT ·spreadNEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD bitmap+8(FP), R1
	MOVD src+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD expand+32(FP), R4
	MOVD R2, R7
	LSL $3, R3

next:
	MOVBU.P 1(R1), R5
	ADD R5<<3, R4, R6
	VLD1 (R6), [V1.B8]
	VLD1 (R2), [V0.B8]
	VTBL V1.B8, [V0.B16], V0.B8
	VST1.P [V0.B8], 8(R0)
	VMOV R5, V2.D[0]
	VCNT V2.B8, V2.B8
	VMOV V2.B[0], R5
	ADD R5, R2
	SUB $1, R3
	CBNZ R3, next
	SUB R7, R2
	MOVD R2, used+40(FP)
	RET
