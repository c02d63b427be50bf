package fusefs

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// When a program ends, the kernel closes what it has open, and waits for the answer to each FLUSH of a
// writer. The thread that asks says in /proc/TID/stat how it is ending: the 9th field has flags (exiting),
// the 52nd its exit status as wait(2) has it, whose lowest 7 bits are the signal that ended it.
//
//	7 (python) R 1 7 … 4228100 … 9
//
// The status is 0 to a reader who may not trace the thread.
//
// A program that executes another one has descriptors closed, too (O_CLOEXEC). Meanwhile it holds a lock of
// the kernel that a reader of /proc/TID/stat waits for, while it waits for the answer. So that file is not
// read before /proc/TID/statm has shown that the thread has no memory any more: it has when it executes, and
// has none when it ends. Nobody is waited for longer than patienceForStat.
const (
	statFlags  = 9
	statStatus = 52

	threadExits = 0x4 // PF_EXITING

	patienceForStat = 2 * time.Second
)

// killed reports whether a thread is ending by a signal. Of one about which nothing can be learnt it is
// false.
func killed(tid uint32) bool {
	if tid == 0 {
		return false
	}
	folder := "/proc/" + strconv.Itoa(int(tid))
	if memory, err := os.ReadFile(folder + "/statm"); err != nil || !bytes.HasPrefix(memory, []byte("0 ")) {
		return false
	}
	found := make(chan bool, 1)
	go func() {
		line, err := os.ReadFile(folder + "/stat")
		found <- err == nil && endsBySignal(line)
	}()
	select {
	case is := <-found:
		return is
	case <-time.After(patienceForStat):
		return false
	}
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
