// Command loopback mounts FOLDER at MOUNTPOINT with go-fuse's own loopback and nothing else: what a
// filesystem in this library costs at the least, for the benchmarks to stand beside. It ends on SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "loopback:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: loopback FOLDER MOUNTPOINT")
	}
	root, err := fs.NewLoopbackRoot(os.Args[1])
	if err != nil {
		return err
	}
	second := time.Second
	server, err := fs.Mount(os.Args[2], root, &fs.Options{
		EntryTimeout: &second, AttrTimeout: &second,
		MountOptions: fuse.MountOptions{FsName: os.Args[1], Name: "loopback", DirectMount: os.Geteuid() == 0},
	})
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-stop
		_ = server.Unmount()
	}()
	server.Wait()
	return nil
}
