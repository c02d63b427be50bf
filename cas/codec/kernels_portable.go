//go:build !amd64

package codec

func split2(p0, p1, src []byte, rot int) { split2Portable(p0, p1, src, rot) }

func merge2(dst, p0, p1 []byte, rot int) { merge2Portable(dst, p0, p1, rot) }

func split4(p0, p1, p2, p3, src []byte, rot int) { split4Portable(p0, p1, p2, p3, src, rot) }

func merge4(dst, p0, p1, p2, p3 []byte, rot int) { merge4Portable(dst, p0, p1, p2, p3, rot) }

func diff(d, a, base []byte, w int, floats bool) { diffPortable(d, a, base, w, floats) }

func undiff(d, base []byte, w int, floats bool) { undiffPortable(d, base, w, floats) }
