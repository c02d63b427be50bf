#include "textflag.h"

// Go's assembler does not know the instructions that stand as WORD.

// NUMBERS sets V16 to V21 to the numbers of the groups.
#define NUMBERS() \
	MOVD $0, R3; \
	VDUP R3, V16.B16; \
	MOVD $1, R3; \
	VDUP R3, V17.B16; \
	MOVD $2, R3; \
	VDUP R3, V18.B16; \
	MOVD $3, R3; \
	VDUP R3, V19.B16; \
	MOVD $4, R3; \
	VDUP R3, V20.B16; \
	MOVD $5, R3; \
	VDUP R3, V21.B16

// COUNT counts the bytes of v that are of each group in V0 to V5.
#define COUNT(v) \
	VCMEQ V16.B16, v.B16, V10.B16; \
	VSUB V10.B16, V0.B16, V0.B16; \
	VCMEQ V17.B16, v.B16, V10.B16; \
	VSUB V10.B16, V1.B16, V1.B16; \
	VCMEQ V18.B16, v.B16, V10.B16; \
	VSUB V10.B16, V2.B16, V2.B16; \
	VCMEQ V19.B16, v.B16, V10.B16; \
	VSUB V10.B16, V3.B16, V3.B16; \
	VCMEQ V20.B16, v.B16, V10.B16; \
	VSUB V10.B16, V4.B16, V4.B16; \
	VCMEQ V21.B16, v.B16, V10.B16; \
	VSUB V10.B16, V5.B16, V5.B16

// ADDUP adds the bytes of v to the number at R0 and at.
#define ADDUP(v, at) \
	VUADDLV v.B16, v; \
	VMOV v.H[0], R5; \
	MOVD at(R0), R6; \
	ADD R5, R6; \
	MOVD R6, at(R0)

// MASK sets V4 to what the compress or expand table has for the bytes of V1 that are of the group e, and R8 to
// how many they are.
#define MASK(e) \
	VCMEQ e.B8, V1.B8, V2.B8; \
	VAND V31.B8, V2.B8, V2.B8; \
	VADDV V2.B8, V3; \
	VMOV V3.B[0], R8; \
	ADD R8<<3, R6, R9; \
	VLD1 (R9), [V4.B8]; \
	VCNT V3.B8, V3.B8; \
	VMOV V3.B[0], R8

// PUT puts the bytes of V0 of the group e at at.
#define PUT(e, at) \
	MASK(e); \
	VTBL V4.B8, [V0.B16], V5.B8; \
	VST1 [V5.B8], (at); \
	ADD R8, at

// TAKE takes the next bytes of the group e from at to their lanes of V5.
#define TAKE(e, at) \
	MASK(e); \
	VLD1 (at), [V0.B8]; \
	VTBL V4.B8, [V0.B16], V0.B8; \
	VORR V0.B8, V5.B8, V5.B8; \
	ADD R8, at

// PLACES sets R11 to R16 to where the groups are. KEEP undoes it.
#define PLACES() \
	MOVD 0(R5), R11; \
	ADD R17, R11; \
	MOVD 8(R5), R12; \
	ADD R17, R12; \
	MOVD 16(R5), R13; \
	ADD R17, R13; \
	MOVD 24(R5), R14; \
	ADD R17, R14; \
	MOVD 32(R5), R15; \
	ADD R17, R15; \
	MOVD 40(R5), R16; \
	ADD R17, R16

#define KEEP() \
	SUB R17, R11; \
	MOVD R11, 0(R5); \
	SUB R17, R12; \
	MOVD R12, 8(R5); \
	SUB R17, R13; \
	MOVD R13, 16(R5); \
	SUB R17, R14; \
	MOVD R14, 24(R5); \
	SUB R17, R15; \
	MOVD R15, 32(R5); \
	SUB R17, R16; \
	MOVD R16, 40(R5)

// func groupOf2NEON(dst, base *byte, blocks int, shift, top, last uint64)
TEXT ·groupOf2NEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD base+8(FP), R1
	MOVD blocks+16(FP), R2
	MOVD shift+24(FP), R3
	ADD $1, R3
	NEG R3, R3
	VDUP R3, V29.H8
	MOVD top+32(FP), R3
	VDUP R3, V30.H8
	MOVD last+40(FP), R3
	VDUP R3, V31.H8
	LSL $2, R2

next:
	VLD1.P 32(R1), [V0.B16, V1.B16]
	VSHL $1, V0.H8, V0.H8
	WORD $0x6e7d4400 // USHL V0.8H, V0.8H, V29.8H
	WORD $0x6e602fc0 // UQSUB V0.8H, V30.8H, V0.8H
	VUMIN V31.H8, V0.H8, V0.H8
	VSHL $1, V1.H8, V1.H8
	WORD $0x6e7d4421 // USHL V1.8H, V1.8H, V29.8H
	WORD $0x6e612fc1 // UQSUB V1.8H, V30.8H, V1.8H
	VUMIN V31.H8, V1.H8, V1.H8
	VUZP1 V1.B16, V0.B16, V0.B16
	VST1.P [V0.B16], 16(R0)
	SUB $1, R2
	CBNZ R2, next
	RET

// func groupOf4NEON(dst, base *byte, blocks int, shift, top, last uint64)
TEXT ·groupOf4NEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD base+8(FP), R1
	MOVD blocks+16(FP), R2
	MOVD shift+24(FP), R3
	ADD $1, R3
	NEG R3, R3
	VDUP R3, V29.S4
	MOVD top+32(FP), R3
	VDUP R3, V30.S4
	MOVD last+40(FP), R3
	VDUP R3, V31.S4
	LSL $2, R2

next:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VSHL $1, V0.S4, V0.S4
	WORD $0x6ebd4400 // USHL V0.4S, V0.4S, V29.4S
	WORD $0x6ea02fc0 // UQSUB V0.4S, V30.4S, V0.4S
	VUMIN V31.S4, V0.S4, V0.S4
	VSHL $1, V1.S4, V1.S4
	WORD $0x6ebd4421 // USHL V1.4S, V1.4S, V29.4S
	WORD $0x6ea12fc1 // UQSUB V1.4S, V30.4S, V1.4S
	VUMIN V31.S4, V1.S4, V1.S4
	VSHL $1, V2.S4, V2.S4
	WORD $0x6ebd4442 // USHL V2.4S, V2.4S, V29.4S
	WORD $0x6ea22fc2 // UQSUB V2.4S, V30.4S, V2.4S
	VUMIN V31.S4, V2.S4, V2.S4
	VSHL $1, V3.S4, V3.S4
	WORD $0x6ebd4463 // USHL V3.4S, V3.4S, V29.4S
	WORD $0x6ea32fc3 // UQSUB V3.4S, V30.4S, V3.4S
	VUMIN V31.S4, V3.S4, V3.S4
	VUZP1 V1.H8, V0.H8, V0.H8
	VUZP1 V3.H8, V2.H8, V1.H8
	VUZP1 V1.B16, V0.B16, V0.B16
	VST1.P [V0.B16], 16(R0)
	SUB $1, R2
	CBNZ R2, next
	RET

// It counts in bytes, which a row of blocks does not fill.
//
// func countGroupsNEON(n *int, group *byte, blocks int)
TEXT ·countGroupsNEON(SB), NOSPLIT, $0-24
	MOVD n+0(FP), R0
	MOVD group+8(FP), R1
	MOVD blocks+16(FP), R2
	NUMBERS()

row:
	MOVD $63, R4
	CMP R4, R2
	CSEL LT, R2, R4, R4
	SUB R4, R2
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	VEOR V4.B16, V4.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16

next:
	VLD1.P 64(R1), [V6.B16, V7.B16, V8.B16, V9.B16]
	COUNT(V6)
	COUNT(V7)
	COUNT(V8)
	COUNT(V9)
	SUB $1, R4
	CBNZ R4, next
	ADDUP(V0, 0)
	ADDUP(V1, 8)
	ADDUP(V2, 16)
	ADDUP(V3, 24)
	ADDUP(V4, 32)
	ADDUP(V5, 40)
	CBNZ R2, row
	RET

// func groupNEON(dst, src, group *byte, blocks, groups int, at *int, compress *byte)
TEXT ·groupNEON(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD group+16(FP), R2
	MOVD blocks+24(FP), R7
	MOVD groups+32(FP), R4
	MOVD at+40(FP), R5
	MOVD compress+48(FP), R6
	MOVD R0, R17
	LSL $3, R7
	MOVD $0x8040201008040201, R3
	VDUP R3, V31.D2
	NUMBERS()
	PLACES()

next:
	VLD1.P 8(R1), [V0.B8]
	VLD1.P 8(R2), [V1.B8]
	PUT(V16, R11)
	CMP $1, R4
	BEQ end
	PUT(V17, R12)
	CMP $2, R4
	BEQ end
	PUT(V18, R13)
	CMP $3, R4
	BEQ end
	PUT(V19, R14)
	CMP $4, R4
	BEQ end
	PUT(V20, R15)
	CMP $5, R4
	BEQ end
	PUT(V21, R16)

end:
	SUB $1, R7
	CBNZ R7, next
	KEEP()
	RET

// func ungroupNEON(dst, src, group *byte, blocks, groups int, at *int, expand *byte)
TEXT ·ungroupNEON(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD group+16(FP), R2
	MOVD blocks+24(FP), R7
	MOVD groups+32(FP), R4
	MOVD at+40(FP), R5
	MOVD expand+48(FP), R6
	MOVD R1, R17
	LSL $3, R7
	MOVD $0x8040201008040201, R3
	VDUP R3, V31.D2
	NUMBERS()
	PLACES()

next:
	VEOR V5.B16, V5.B16, V5.B16
	VLD1.P 8(R2), [V1.B8]
	TAKE(V16, R11)
	CMP $1, R4
	BEQ end
	TAKE(V17, R12)
	CMP $2, R4
	BEQ end
	TAKE(V18, R13)
	CMP $3, R4
	BEQ end
	TAKE(V19, R14)
	CMP $4, R4
	BEQ end
	TAKE(V20, R15)
	CMP $5, R4
	BEQ end
	TAKE(V21, R16)

end:
	VST1.P [V5.B8], 8(R0)
	SUB $1, R7
	CBNZ R7, next
	KEEP()
	RET
