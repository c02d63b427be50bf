#include "textflag.h"

// Go's assembler does not know the instructions that stand as WORD.

// ORDER2 maps floats to integers of the same order, and leaves integers alone, where V31 is zero. x is Vn, and
// t, which is Vm, is lost.
#define ORDER2(x, n, t, m) \
	WORD $(0x4e60a800 | n<<5 | m) /* CMLT t.8H, x.8H, #0 */; \
	VORR V30.B16, t.B16, t.B16; \
	VAND V31.B16, t.B16, t.B16; \
	VEOR t.B16, x.B16, x.B16

// DIFF2 sets a, which is Vn, to its zigzag-coded difference from b, which is Vm and lost.
#define DIFF2(a, n, b, m) \
	ORDER2(b, m, V8, 8); \
	ORDER2(a, n, V9, 9); \
	VSUB b.H8, a.H8, a.H8; \
	WORD $(0x4e60a808 | n<<5) /* CMLT V8.8H, a.8H, #0 */; \
	VSHL $1, a.H8, a.H8; \
	VEOR V8.B16, a.B16, a.B16

// UNDIFF2 undoes DIFF2.
#define UNDIFF2(a, n, b, m) \
	ORDER2(b, m, V8, 8); \
	VAND V29.B16, a.B16, V8.B16; \
	VSUB V8.H8, V28.H8, V8.H8; \
	VUSHR $1, a.H8, a.H8; \
	VEOR V8.B16, a.B16, a.B16; \
	VADD b.H8, a.H8, a.H8; \
	WORD $(0x6e608809 | n<<5) /* CMGE V9.8H, a.8H, #0 */; \
	VORR V30.B16, V9.B16, V9.B16; \
	VAND V31.B16, V9.B16, V9.B16; \
	VEOR V9.B16, a.B16, a.B16

// ORDER4 is ORDER2 for 4 bytes.
#define ORDER4(x, n, t, m) \
	WORD $(0x4ea0a800 | n<<5 | m) /* CMLT t.4S, x.4S, #0 */; \
	VORR V30.B16, t.B16, t.B16; \
	VAND V31.B16, t.B16, t.B16; \
	VEOR t.B16, x.B16, x.B16

// DIFF4 is DIFF2 for 4 bytes.
#define DIFF4(a, n, b, m) \
	ORDER4(b, m, V8, 8); \
	ORDER4(a, n, V9, 9); \
	VSUB b.S4, a.S4, a.S4; \
	WORD $(0x4ea0a808 | n<<5) /* CMLT V8.4S, a.4S, #0 */; \
	VSHL $1, a.S4, a.S4; \
	VEOR V8.B16, a.B16, a.B16

// UNDIFF4 is UNDIFF2 for 4 bytes.
#define UNDIFF4(a, n, b, m) \
	ORDER4(b, m, V8, 8); \
	VAND V29.B16, a.B16, V8.B16; \
	VSUB V8.S4, V28.S4, V8.S4; \
	VUSHR $1, a.S4, a.S4; \
	VEOR V8.B16, a.B16, a.B16; \
	VADD b.S4, a.S4, a.S4; \
	WORD $(0x6ea08809 | n<<5) /* CMGE V9.4S, a.4S, #0 */; \
	VORR V30.B16, V9.B16, V9.B16; \
	VAND V31.B16, V9.B16, V9.B16; \
	VEOR V9.B16, a.B16, a.B16

// func diff2NEON(dst, a, base *byte, blocks int, floats uint64)
TEXT ·diff2NEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD a+8(FP), R1
	MOVD base+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD floats+32(FP), R4
	VDUP R4, V31.D2
	MOVD $0x8000, R4
	VDUP R4, V30.H8
	MOVD $1, R4
	VDUP R4, V29.H8
	VEOR V28.B16, V28.B16, V28.B16

next:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	DIFF2(V0, 0, V4, 4)
	DIFF2(V1, 1, V5, 5)
	DIFF2(V2, 2, V6, 6)
	DIFF2(V3, 3, V7, 7)
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUB $1, R3
	CBNZ R3, next
	RET

// func undiff2NEON(dst, a, base *byte, blocks int, floats uint64)
TEXT ·undiff2NEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD a+8(FP), R1
	MOVD base+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD floats+32(FP), R4
	VDUP R4, V31.D2
	MOVD $0x8000, R4
	VDUP R4, V30.H8
	MOVD $1, R4
	VDUP R4, V29.H8
	VEOR V28.B16, V28.B16, V28.B16

next:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	UNDIFF2(V0, 0, V4, 4)
	UNDIFF2(V1, 1, V5, 5)
	UNDIFF2(V2, 2, V6, 6)
	UNDIFF2(V3, 3, V7, 7)
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUB $1, R3
	CBNZ R3, next
	RET

// func diff4NEON(dst, a, base *byte, blocks int, floats uint64)
TEXT ·diff4NEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD a+8(FP), R1
	MOVD base+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD floats+32(FP), R4
	VDUP R4, V31.D2
	MOVD $0x80000000, R4
	VDUP R4, V30.S4
	MOVD $1, R4
	VDUP R4, V29.S4
	VEOR V28.B16, V28.B16, V28.B16

next:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	DIFF4(V0, 0, V4, 4)
	DIFF4(V1, 1, V5, 5)
	DIFF4(V2, 2, V6, 6)
	DIFF4(V3, 3, V7, 7)
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUB $1, R3
	CBNZ R3, next
	RET

// func undiff4NEON(dst, a, base *byte, blocks int, floats uint64)
TEXT ·undiff4NEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD a+8(FP), R1
	MOVD base+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD floats+32(FP), R4
	VDUP R4, V31.D2
	MOVD $0x80000000, R4
	VDUP R4, V30.S4
	MOVD $1, R4
	VDUP R4, V29.S4
	VEOR V28.B16, V28.B16, V28.B16

next:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	UNDIFF4(V0, 0, V4, 4)
	UNDIFF4(V1, 1, V5, 5)
	UNDIFF4(V2, 2, V6, 6)
	UNDIFF4(V3, 3, V7, 7)
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUB $1, R3
	CBNZ R3, next
	RET
