//go:build lockrank && !amd64 && !arm64

package locks

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine is the number of the calling goroutine, which only its own stack trace tells: "goroutine 7
// [running]:".
func goroutine() uintptr {
	var buf [40]byte
	field := bytes.Fields(buf[:runtime.Stack(buf[:], false)])[1]
	n, err := strconv.ParseUint(string(field), 10, 64)
	if err != nil {
		panic(err) // the runtime's format is another one
	}
	return uintptr(n)
}
