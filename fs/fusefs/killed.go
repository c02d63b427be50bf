package fusefs

import (
	"bytes"
	"os"
	"strconv"
)

// When a program ends, the kernel closes what it has open, and waits for the answer to each FLUSH of a
// writer. The thread that asks says in /proc/TID/stat how it is ending: the 9th field has flags (exiting),
// the 52nd its exit status as wait(2) has it, whose lowest 7 bits are the signal that ended it.
//
//	7 (python) R 1 7 … 4228100 … 9
//
// The status is 0 to a reader who may not trace the thread.
const (
	statFlags  = 9
	statStatus = 52

	threadExits    = 0x4   // PF_EXITING
	threadSignaled = 0x400 // PF_SIGNALED
)

// killed reports whether a thread is ending by a signal. Of one about which nothing can be learnt it is
// false.
func killed(tid uint32) bool {
	if tid == 0 {
		return false
	}
	line, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/stat")
	return err == nil && endsBySignal(line)
}

// endsBySignal is killed, from a line of /proc/TID/stat. Threads of a program that calls exit(2) are ended as
// by a signal, too (PF_SIGNALED). Then only the status tells.
func endsBySignal(line []byte) bool {
	const first = 3 // of the fields behind the name, which is the program's to choose
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) <= statStatus-first {
		return false
	}
	field := func(i int) uint64 {
		n, _ := strconv.ParseUint(string(fields[i-first]), 10, 64)
		return n
	}
	return field(statFlags)&threadExits != 0 && field(statStatus)&0x7f != 0
}
