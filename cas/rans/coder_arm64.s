#include "textflag.h"

// Four states are a vector, and all stay in registers, from V16 on. What is done with one is done alike with
// all. Go's assembler does not know the instructions that stand as WORD.

// DECODE takes a step of the states x, which is Vn, and sets t to their bytes.
#define DECODE(x, n, t) \
	VAND V12.B16, x.B16, V4.B16; \
	VMOV V4.D[0], R8; \
	VMOV V4.D[1], R9; \
	MOVWU R8, R10; \
	LSR $32, R8; \
	MOVWU R9, R11; \
	LSR $32, R9; \
	MOVWU (R2)(R10<<2), R10; \
	MOVWU (R2)(R8<<2), R8; \
	MOVWU (R2)(R11<<2), R11; \
	MOVWU (R2)(R9<<2), R9; \
	VMOV R10, t.S[0]; \
	VMOV R8, t.S[1]; \
	VMOV R11, t.S[2]; \
	VMOV R9, t.S[3]; \
	VUSHR $12, x.S4, x.S4; \
	VAND V12.B16, t.B16, V5.B16; \
	VUSHR $12, t.S4, V6.S4; \
	VAND V12.B16, V6.B16, V6.B16; \
	WORD $(0x4ea094a6 | n<<16) /* MLA V6.4S, V5.4S, x.4S */; \
	WORD $0x6ea635a7 /* CMHI V7.4S, V13.4S, V6.4S */; \
	VAND V14.B16, V7.B16, V8.B16; \
	VADDV V8.S4, V8; \
	VMOV V8.S[0], R10; \
	ADD R10<<4, R6, R11; \
	VLD1 (R11), [V9.B16]; \
	VLD1 (R4), [V10.B8]; \
	VTBL V9.B16, [V10.B16], V9.B16; \
	VSHL $16, V6.S4, x.S4; \
	VORR V9.B16, x.B16, x.B16; \
	VBIF V7.B16, V6.B16, x.B16; \
	VCNT V8.B8, V8.B8; \
	VMOV V8.B[0], R10; \
	ADD R10<<1, R4; \
	VUSHR $24, t.S4, t.S4

// PUT16 puts the bytes of V0 to V3 in order.
#define PUT16() \
	VUZP1 V1.H8, V0.H8, V0.H8; \
	VUZP1 V3.H8, V2.H8, V2.H8; \
	VUZP1 V2.B16, V0.B16, V0.B16; \
	VST1.P [V0.B16], 16(R0)

// ENCODE takes a step of the states x, which is Vn, with the bytes at off.
#define ENCODE(off, x, n) \
	MOVWU off(R1), R8; \
	UBFX $0, R8, $8, R9; \
	UBFX $8, R8, $8, R10; \
	UBFX $16, R8, $8, R11; \
	UBFX $24, R8, $8, R12; \
	MOVD (R3)(R9<<3), R9; \
	MOVD (R3)(R10<<3), R10; \
	MOVD (R3)(R11<<3), R11; \
	MOVD (R3)(R12<<3), R12; \
	VMOV R9, V0.D[0]; \
	VMOV R10, V0.D[1]; \
	VMOV R11, V1.D[0]; \
	VMOV R12, V1.D[1]; \
	VUZP1 V1.S4, V0.S4, V2.S4; \
	VUZP2 V1.S4, V0.S4, V3.S4; \
	VUSHR $19, V3.S4, V4.S4; \
	VSHL $19, V4.S4, V5.S4; \
	WORD $(0x6ea53c06 | n<<5) /* CMHS V6.4S, x.4S, V5.4S */; \
	VAND V14.B16, V6.B16, V7.B16; \
	VADDV V7.S4, V7; \
	VMOV V7.S[0], R8; \
	ADD R8<<3, R6, R9; \
	VLD1 (R9), [V8.B8]; \
	VTBL V8.B8, [x.B16], V8.B8; \
	SUB $8, R0, R9; \
	VST1 [V8.B8], (R9); \
	VCNT V7.B8, V7.B8; \
	VMOV V7.B[0], R8; \
	SUB R8<<1, R0; \
	VUSHR $16, x.S4, V8.S4; \
	VBIT V6.B16, V8.B16, x.B16; \
	WORD $(0x2ea2c008 | n<<5) /* UMULL V8.2D, x.2S, V2.2S */; \
	WORD $(0x6ea2c009 | n<<5) /* UMULL2 V9.2D, x.4S, V2.4S */; \
	VUZP2 V9.S4, V8.S4, V8.S4; \
	VAND V11.B16, V3.B16, V9.B16; \
	VSUB V9.S4, V15.S4, V9.S4; \
	WORD $0x6ea94508 /* USHL V8.4S, V8.4S, V9.4S */; \
	VUSHR $5, V3.S4, V3.S4; \
	VAND V12.B16, V3.B16, V3.B16; \
	VADD V3.S4, x.S4, x.S4; \
	VSUB V4.S4, V13.S4, V4.S4; \
	WORD $(0x4ea49500 | n) /* MLA x.4S, V8.4S, V4.4S */

// func decode16NEON(dst *byte, steps int, t, x *uint32, words *byte, n int, expand *byte) (left, used int)
TEXT ·decode16NEON(SB), NOSPLIT, $0-72
	MOVD dst+0(FP), R0
	MOVD steps+8(FP), R1
	MOVD t+16(FP), R2
	MOVD x+24(FP), R3
	MOVD words+32(FP), R4
	MOVD n+40(FP), R5
	MOVD expand+48(FP), R6
	MOVD R4, R7
	ADD R4, R5
	MOVD $4095, R8
	VDUP R8, V12.S4
	MOVD $(1<<15), R8
	VDUP R8, V13.S4
	MOVD $0x0000000200000001, R8
	VMOV R8, V14.D[0]
	MOVD $0x0000000800000004, R8
	VMOV R8, V14.D[1]
	MOVD R3, R8
	VLD1.P 64(R8), [V16.S4, V17.S4, V18.S4, V19.S4]

step:
	SUB R4, R5, R8
	CMP $32, R8
	BLT done
	DECODE(V16, 16, V0)
	DECODE(V17, 17, V1)
	DECODE(V18, 18, V2)
	DECODE(V19, 19, V3)
	PUT16()
	SUB $1, R1
	CBNZ R1, step

done:
	MOVD R3, R8
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R8)
	MOVD R1, left+56(FP)
	SUB R7, R4
	MOVD R4, used+64(FP)
	RET

// func encode16NEON(last, src *byte, steps int, codes *uint64, x *uint32, compress *byte) (put int)
TEXT ·encode16NEON(SB), NOSPLIT, $0-56
	MOVD last+0(FP), R0
	MOVD src+8(FP), R1
	MOVD steps+16(FP), R2
	MOVD codes+24(FP), R3
	MOVD x+32(FP), R4
	MOVD compress+40(FP), R6
	ADD $1, R0
	MOVD R0, R7
	SUB $15, R1
	MOVD $31, R8
	VDUP R8, V11.S4
	MOVD $8191, R8
	VDUP R8, V12.S4
	MOVD $4096, R8
	VDUP R8, V13.S4
	VEOR V15.B16, V15.B16, V15.B16
	MOVD $0x0000000200000001, R8
	VMOV R8, V14.D[0]
	MOVD $0x0000000800000004, R8
	VMOV R8, V14.D[1]
	MOVD R4, R8
	VLD1.P 64(R8), [V16.S4, V17.S4, V18.S4, V19.S4]

step:
	ENCODE(12, V19, 19)
	ENCODE(8, V18, 18)
	ENCODE(4, V17, 17)
	ENCODE(0, V16, 16)
	SUB $16, R1
	SUB $1, R2
	CBNZ R2, step
	MOVD R4, R8
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R8)
	SUB R0, R7
	MOVD R7, put+48(FP)
	RET

// func decode32NEON(dst *byte, steps int, t, x *uint32, words *byte, n int, expand *byte) (left, used int)
TEXT ·decode32NEON(SB), NOSPLIT, $0-72
	MOVD dst+0(FP), R0
	MOVD steps+8(FP), R1
	MOVD t+16(FP), R2
	MOVD x+24(FP), R3
	MOVD words+32(FP), R4
	MOVD n+40(FP), R5
	MOVD expand+48(FP), R6
	MOVD R4, R7
	ADD R4, R5
	MOVD $4095, R8
	VDUP R8, V12.S4
	MOVD $(1<<15), R8
	VDUP R8, V13.S4
	MOVD $0x0000000200000001, R8
	VMOV R8, V14.D[0]
	MOVD $0x0000000800000004, R8
	VMOV R8, V14.D[1]
	MOVD R3, R8
	VLD1.P 64(R8), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1.P 64(R8), [V20.S4, V21.S4, V22.S4, V23.S4]

step:
	SUB R4, R5, R8
	CMP $64, R8
	BLT done
	DECODE(V16, 16, V0)
	DECODE(V17, 17, V1)
	DECODE(V18, 18, V2)
	DECODE(V19, 19, V3)
	PUT16()
	DECODE(V20, 20, V0)
	DECODE(V21, 21, V1)
	DECODE(V22, 22, V2)
	DECODE(V23, 23, V3)
	PUT16()
	SUB $1, R1
	CBNZ R1, step

done:
	MOVD R3, R8
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R8)
	VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R8)
	MOVD R1, left+56(FP)
	SUB R7, R4
	MOVD R4, used+64(FP)
	RET

// func encode32NEON(last, src *byte, steps int, codes *uint64, x *uint32, compress *byte) (put int)
TEXT ·encode32NEON(SB), NOSPLIT, $0-56
	MOVD last+0(FP), R0
	MOVD src+8(FP), R1
	MOVD steps+16(FP), R2
	MOVD codes+24(FP), R3
	MOVD x+32(FP), R4
	MOVD compress+40(FP), R6
	ADD $1, R0
	MOVD R0, R7
	SUB $31, R1
	MOVD $31, R8
	VDUP R8, V11.S4
	MOVD $8191, R8
	VDUP R8, V12.S4
	MOVD $4096, R8
	VDUP R8, V13.S4
	VEOR V15.B16, V15.B16, V15.B16
	MOVD $0x0000000200000001, R8
	VMOV R8, V14.D[0]
	MOVD $0x0000000800000004, R8
	VMOV R8, V14.D[1]
	MOVD R4, R8
	VLD1.P 64(R8), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1.P 64(R8), [V20.S4, V21.S4, V22.S4, V23.S4]

step:
	ENCODE(28, V23, 23)
	ENCODE(24, V22, 22)
	ENCODE(20, V21, 21)
	ENCODE(16, V20, 20)
	ENCODE(12, V19, 19)
	ENCODE(8, V18, 18)
	ENCODE(4, V17, 17)
	ENCODE(0, V16, 16)
	SUB $32, R1
	SUB $1, R2
	CBNZ R2, step
	MOVD R4, R8
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R8)
	VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R8)
	SUB R0, R7
	MOVD R7, put+48(FP)
	RET

// func decode64NEON(dst *byte, steps int, t, x *uint32, words *byte, n int, expand *byte) (left, used int)
TEXT ·decode64NEON(SB), NOSPLIT, $0-72
	MOVD dst+0(FP), R0
	MOVD steps+8(FP), R1
	MOVD t+16(FP), R2
	MOVD x+24(FP), R3
	MOVD words+32(FP), R4
	MOVD n+40(FP), R5
	MOVD expand+48(FP), R6
	MOVD R4, R7
	ADD R4, R5
	MOVD $4095, R8
	VDUP R8, V12.S4
	MOVD $(1<<15), R8
	VDUP R8, V13.S4
	MOVD $0x0000000200000001, R8
	VMOV R8, V14.D[0]
	MOVD $0x0000000800000004, R8
	VMOV R8, V14.D[1]
	MOVD R3, R8
	VLD1.P 64(R8), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1.P 64(R8), [V20.S4, V21.S4, V22.S4, V23.S4]
	VLD1.P 64(R8), [V24.S4, V25.S4, V26.S4, V27.S4]
	VLD1.P 64(R8), [V28.S4, V29.S4, V30.S4, V31.S4]

step:
	SUB R4, R5, R8
	CMP $128, R8
	BLT done
	DECODE(V16, 16, V0)
	DECODE(V17, 17, V1)
	DECODE(V18, 18, V2)
	DECODE(V19, 19, V3)
	PUT16()
	DECODE(V20, 20, V0)
	DECODE(V21, 21, V1)
	DECODE(V22, 22, V2)
	DECODE(V23, 23, V3)
	PUT16()
	DECODE(V24, 24, V0)
	DECODE(V25, 25, V1)
	DECODE(V26, 26, V2)
	DECODE(V27, 27, V3)
	PUT16()
	DECODE(V28, 28, V0)
	DECODE(V29, 29, V1)
	DECODE(V30, 30, V2)
	DECODE(V31, 31, V3)
	PUT16()
	SUB $1, R1
	CBNZ R1, step

done:
	MOVD R3, R8
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R8)
	VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R8)
	VST1.P [V24.S4, V25.S4, V26.S4, V27.S4], 64(R8)
	VST1.P [V28.S4, V29.S4, V30.S4, V31.S4], 64(R8)
	MOVD R1, left+56(FP)
	SUB R7, R4
	MOVD R4, used+64(FP)
	RET

// func encode64NEON(last, src *byte, steps int, codes *uint64, x *uint32, compress *byte) (put int)
TEXT ·encode64NEON(SB), NOSPLIT, $0-56
	MOVD last+0(FP), R0
	MOVD src+8(FP), R1
	MOVD steps+16(FP), R2
	MOVD codes+24(FP), R3
	MOVD x+32(FP), R4
	MOVD compress+40(FP), R6
	ADD $1, R0
	MOVD R0, R7
	SUB $63, R1
	MOVD $31, R8
	VDUP R8, V11.S4
	MOVD $8191, R8
	VDUP R8, V12.S4
	MOVD $4096, R8
	VDUP R8, V13.S4
	VEOR V15.B16, V15.B16, V15.B16
	MOVD $0x0000000200000001, R8
	VMOV R8, V14.D[0]
	MOVD $0x0000000800000004, R8
	VMOV R8, V14.D[1]
	MOVD R4, R8
	VLD1.P 64(R8), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1.P 64(R8), [V20.S4, V21.S4, V22.S4, V23.S4]
	VLD1.P 64(R8), [V24.S4, V25.S4, V26.S4, V27.S4]
	VLD1.P 64(R8), [V28.S4, V29.S4, V30.S4, V31.S4]

step:
	ENCODE(60, V31, 31)
	ENCODE(56, V30, 30)
	ENCODE(52, V29, 29)
	ENCODE(48, V28, 28)
	ENCODE(44, V27, 27)
	ENCODE(40, V26, 26)
	ENCODE(36, V25, 25)
	ENCODE(32, V24, 24)
	ENCODE(28, V23, 23)
	ENCODE(24, V22, 22)
	ENCODE(20, V21, 21)
	ENCODE(16, V20, 20)
	ENCODE(12, V19, 19)
	ENCODE(8, V18, 18)
	ENCODE(4, V17, 17)
	ENCODE(0, V16, 16)
	SUB $64, R1
	SUB $1, R2
	CBNZ R2, step
	MOVD R4, R8
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R8)
	VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R8)
	VST1.P [V24.S4, V25.S4, V26.S4, V27.S4], 64(R8)
	VST1.P [V28.S4, V29.S4, V30.S4, V31.S4], 64(R8)
	SUB R0, R7
	MOVD R7, put+48(FP)
	RET
