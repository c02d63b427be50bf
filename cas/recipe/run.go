package recipe

// Decode appends the rawLen bytes that stored, a program and its streams, makes of bases, which lie one behind
// the other. Its errors and bounds are those of codec.Codec, but for memory of up to four values.
func Decode(dst, stored, bases []byte, rawLen int) ([]byte, error) { return dst, corrupt("not yet") }

// Encode appends what a record of raw has behind the names of its bases: a program, as Program.Append makes
// it, and its streams. It returns dst as it was and false unless that takes at most the given number of bytes.
// What was encoded has been decoded again and compared.
func Encode(dst, program, raw, bases []byte, most int) (out []byte, ok bool) { return dst, false }
