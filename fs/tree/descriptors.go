package tree

import (
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors is how many descriptors this process may have open.
func Descriptors() int {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return 1024
	}
	return int(min(lim.Cur, math.MaxInt32))
}
