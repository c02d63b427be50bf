package fusefs

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Opcodes of linux/fuse.h that are treated by themselves.
const (
	opForget      = 2
	opRename      = 12
	opRead        = 15
	opWrite       = 16
	opRelease     = 18
	opGetxattr    = 22
	opListxattr   = 23
	opReaddir     = 28
	opInterrupt   = 36
	opIoctl       = 39
	opBatchForget = 42
	opReaddirplus = 44
	opRename2     = 45
)

// as is a request as one of go-fuse's structs, which begin with the kernel's header; nil if it is too short.
func as[T any](req []byte) *T {
	var t T
	if len(req) < int(unsafe.Sizeof(t)) {
		return nil
	}
	return (*T)(unsafe.Pointer(&req[0]))
}

// unanswered are requests that the kernel sends without waiting.
func unanswered(op uint32) bool { return op == opForget || op == opBatchForget }

// most of what an answer holds: its header, and the largest of the kernel's structs; and a page, for the
// longest path of a READLINK.
const fewBytes = 512 + page

// answerRoom is how much an answer may need.
func answerRoom(req []byte, op uint32) int {
	switch op {
	case opRead, opReaddir, opReaddirplus:
		if in := as[fuse.ReadIn](req); in != nil {
			return fewBytes + int(in.Size)
		}
	case opGetxattr, opListxattr:
		if in := as[fuse.GetXAttrIn](req); in != nil {
			return fewBytes + int(in.Size)
		}
	case opIoctl:
		if in := as[fuse.IoctlIn](req); in != nil {
			return fewBytes + int(in.OutSize)
		}
	}
	return fewBytes
}

// answerHeader is struct fuse_out_header of an answer that has n more bytes.
func answerHeader(unique uint64, st fuse.Status, n int) []byte {
	h := &fuse.OutHeader{Status: -int32(st), Unique: unique}
	h.Length = uint32(unsafe.Sizeof(*h)) + uint32(n)
	return unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Sizeof(*h))
}
