//go:build !amd64

package blake3

func sumWide(*[32]byte, []byte) bool { return false }
