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
	case Q4_K, Q5_K:
		low := p[shapes[f].bytes-128:]
		clear(low[:128])
		if f == Q5_K {
			clear(p[16:48])
		}
		for j, c := range codes {
			low[j/64*32+j%32] |= c & 15 << (j / 32 % 2 * 4)
			if f == Q5_K {
				p[16+j%32] |= c >> 4 << (j / 32)
			}
		}
	case Q6_K:
		clear(p[:192])
		for j, c := range codes {
			l, part := j%32, j/32%4
			p[j/128*64+part%2*32+l] |= c & 15 << (part / 2 * 4)
			p[128+j/128*32+l] |= c >> 4 << (2 * part)
		}
	case Q2_K, Q3_K:
		low := p[f.codes():]
		clear(low[:64])
		if f == Q3_K {
			clear(p[:32])
		}
		for j, c := range codes {
			low[j/128*32+j%32] |= c & 3 << (j / 32 % 4 * 2)
			if f == Q3_K {
				p[j%32] |= c >> 2 << (j / 32)
			}
		}
	}
}

func packHalves(p, codes []byte) {
	for j := range 16 {
		p[j] = codes[j]&15 | codes[j+16]<<4
	}
}
