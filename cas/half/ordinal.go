package half

// Ordinal16 is the place of a number of 16 bits, bfloat16 or binary16, in the order of all of them: -0 comes
// right before 0, and what is no number before or behind all others.
func Ordinal16(x uint16) uint16 { return x ^ (uint16(int16(x)>>15) | 1<<15) }

// FromOrdinal16 is the number with a place.
func FromOrdinal16(o uint16) uint16 { return o ^ (uint16(^int16(o)>>15) | 1<<15) }

// Ordinal32 is Ordinal16 for single precision.
func Ordinal32(x uint32) uint32 { return x ^ (uint32(int32(x)>>31) | 1<<31) }

// FromOrdinal32 is the number with a place.
func FromOrdinal32(o uint32) uint32 { return o ^ (uint32(^int32(o)>>31) | 1<<31) }
