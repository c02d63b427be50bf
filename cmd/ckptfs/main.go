// Command ckptfs mounts a store of deduplicated machine-learning checkpoints, and asks and steers it.
//
// Every command but mount takes a path: inside a mount, a store's folder, or a file below its tree. It is
// answered by the daemon that has the store, over the store's control socket, or, when there is none, by this
// process on the opened store; both run the same handler (package ckptfs/fs/control), so no command knows the
// difference.
//
//	where.go    path -> store, mountpoint, path inside
//	session.go  store -> client
//	open.go     opens a store in this process
//	serve.go    the daemon
//	helper.go   called by mount(8), umount(8), mount.fuse3(8)
//	the rest    one command or one thing a file
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := untilSignal(ends...)
	code := start(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// sameSignal is for how long after a signal another one counts as the same: timeout(1) sends its signal to
// the program and to its group, and a program that runs another passes on what the terminal sent to both.
const sameSignal = time.Second / 2

// untilSignal ends its context at the first of these signals. The second one kills.
func untilSignal(ends ...os.Signal) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })
	return ctx, stop
}
