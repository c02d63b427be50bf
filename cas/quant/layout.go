package quant

import "encoding/binary"

var le = binary.LittleEndian

// get16 and put16 are of the scale (0) or the offset (1) of a block.
func (q *Quantiser) get16(p []byte, which int) uint16 { return le.Uint16(p[q.place(which):]) }

func (q *Quantiser) put16(p []byte, which int, v uint16) { le.PutUint16(p[q.place(which):], v) }

func (q *Quantiser) place(which int) int {
	switch q.Format {
	case Q2_K:
		return 80 + 2*which
	case Q3_K, Q6_K:
		return shapes[q.Format].bytes - 2
	}
	return 2 * which
}

// split takes a block's scales, and offsets, apart.
func (q *Quantiser) split(p []byte, sc, mn *[16]byte) {
	switch q.Format {
	case Q4_K, Q5_K:
		s := p[4:16]
		for j := range 4 {
			sc[j], mn[j] = s[j]&63, s[j+4]&63
			sc[j+4], mn[j+4] = s[j+8]&15|s[j]>>6<<4, s[j+8]>>4|s[j+4]>>6<<4
		}
	case Q2_K:
		for j := range sc {
			sc[j], mn[j] = p[j]&15, p[j]>>4
		}
	case Q3_K:
		s := p[96:108]
		for j := range sc {
			sc[j] = s[j%8]>>(j/8*4)&15 | s[8+j%4]>>(j/4*2)&3<<4
		}
	case Q6_K:
		copy(sc[:], p[192:208])
	case IQ4_XS:
		high := le.Uint16(p[2:])
		for j := range 8 {
			sc[j] = p[4+j/2]>>(j%2*4)&15 | byte(high>>(2*j)&3)<<4
		}
	}
}

// join puts them together.
func (q *Quantiser) join(p []byte, sc, mn *[16]byte) {
	switch q.Format {
	case Q4_K, Q5_K:
		s := p[4:16]
		for j := range 4 {
			s[j], s[j+4] = sc[j]|sc[j+4]>>4<<6, mn[j]|mn[j+4]>>4<<6
			s[j+8] = sc[j+4]&15 | mn[j+4]<<4
		}
	case Q2_K:
		for j := range sc {
			p[j] = sc[j] | mn[j]<<4
		}
	case Q3_K:
		s := p[96:108]
		clear(s)
		for j := range sc {
			s[j%8] |= sc[j] & 15 << (j / 8 * 4)
			s[8+j%4] |= sc[j] >> 4 << (j / 4 * 2)
		}
	case Q6_K:
		copy(p[192:208], sc[:])
	case IQ4_XS:
		var high uint16
		for j := range 4 {
			p[4+j] = sc[2*j]&15 | sc[2*j+1]<<4
		}
		for j := range 8 {
			high |= uint16(sc[j]>>4) << (2 * j)
		}
		le.PutUint16(p[2:], high)
	}
}

// unpack sets codes to those of a block, in the order of its elements.
func (f Format) unpack(codes []byte, p []byte) {
	switch f {
	case Q8_0:
		copy(codes, p[2:])
	case Q4_0, IQ4_NL:
		halves(codes, p[2:])
	case Q4_1:
		halves(codes, p[4:])
	case MXFP4:
		halves(codes, p[1:])
	case Q5_0, Q5_1:
		p = p[f.codes():]
		halves(codes, p[4:])
		high := le.Uint32(p)
		for j := range codes {
			codes[j] |= byte(high>>j) & 1 << 4
		}
	case IQ4_XS:
		for j := range 8 {
			halves(codes[32*j:32*j+32], p[8+16*j:])
		}
	case Q4_K, Q5_K:
		low := p[shapes[f].bytes-128:]
		for j := range codes {
			codes[j] = low[j/64*32+j%32] >> (j / 32 % 2 * 4) & 15
			if f == Q5_K {
				codes[j] |= p[16+j%32] >> (j / 32) & 1 << 4
			}
		}
	case Q6_K:
		for j := range codes {
			l, part := j%32, j/32%4
			codes[j] = p[j/128*64+part%2*32+l]>>(part/2*4)&15 | p[128+j/128*32+l]>>(2*part)&3<<4
		}
	case Q2_K, Q3_K:
		low := p[f.codes():]
		for j := range codes {
			codes[j] = low[j/128*32+j%32] >> (j / 32 % 4 * 2) & 3
			if f == Q3_K {
				codes[j] |= p[j%32] >> (j / 32) & 1 << 2
			}
		}
	}
}

// codes is where the codes of a block begin, or the lower bits of those of which the upper ones lie apart.
func (f Format) codes() int {
	switch f {
	case Q4_1, Q5_1:
		return 4
	case Q2_K, Q4_K:
		return 16
	case Q3_K:
		return 32
	}
	return 2
}

func halves(codes, p []byte) {
	for j := range 16 {
		codes[j], codes[j+16] = p[j]&15, p[j]>>4
	}
}

// pack sets the codes of a block.
func (f Format) pack(p []byte, codes []byte) {
	switch f {
	case Q8_0:
		copy(p[2:], codes)
	case Q4_0, IQ4_NL:
		packHalves(p[2:], codes)
	case Q4_1:
		packHalves(p[4:], codes)
	case MXFP4:
		packHalves(p[1:], codes)
	case Q5_0, Q5_1:
		p = p[f.codes():]
		var high uint32
		for j, c := range codes {
			high |= uint32(c>>4) << j
		}
		le.PutUint32(p, high)
		packHalves(p[4:], codes)
	case IQ4_XS:
		for j := range 8 {
			packHalves(p[8+16*j:], codes[32*j:32*j+32])
		}
	case Q4_K:
		for s := range 4 {
			merge(p[16+32*s:48+32*s], codes[64*s:64*s+32], 0xf, codes[64*s+32:], 0xf, 4)
		}
	case Q5_K:
		clear(p[16:48])
		for s := range 4 {
			merge(p[48+32*s:80+32*s], codes[64*s:64*s+32], 0xf, codes[64*s+32:], 0xf, 4)
			bitsOf(p[16:48], codes[64*s:], 4, 2*s)
			bitsOf(p[16:48], codes[64*s+32:], 4, 2*s+1)
		}
	case Q6_K:
		clear(p[128:192])
		for s := range 2 {
			low, high, codes := p[64*s:64*s+64], p[128+32*s:160+32*s], codes[128*s:128*s+128]
			merge(low, codes[:64], 0xf, codes[64:], 0xf, 4)
			for part := range 4 {
				merge(high, high, 0xff, codes[32*part:], 0x30, 2*part-4)
			}
		}
	case Q2_K, Q3_K:
		low := p[f.codes():]
		clear(low[:64])
		for part := range 8 {
			low := low[part/4*32:][:32]
			merge(low, low, 0xff, codes[32*part:], 3, part%4*2)
		}
		if f == Q3_K {
			clear(p[:32])
			for part := range 8 {
				bitsOf(p[:32], codes[32*part:], 2, part)
			}
		}
	}
}

// bitsOf adds bit from of the codes to dst as its bit to.
func bitsOf(dst, codes []byte, from, to int) { merge(dst, dst, 0xff, codes, 1<<from, to-from) }

// merge sets dst, of a multiple of 8 bytes, to bits of a, and bits of b moved up by so many.
func merge(dst, a []byte, maskA byte, b []byte, maskB byte, upB int) {
	const each = 0x0101010101010101
	ma, mb := uint64(maskA)*each, uint64(maskB)*each
	a, b = a[:len(dst)], b[:len(dst)]
	up, down := max(upB, 0), max(-upB, 0)
	for i := 0; i+8 <= len(dst); i += 8 {
		le.PutUint64(dst[i:], le.Uint64(a[i:])&ma|le.Uint64(b[i:])&mb<<up>>down)
	}
}

func packHalves(p, codes []byte) { merge(p[:16], codes, 0xf, codes[16:], 0xf, 4) }
