package main

import (
	"context"
	"log/slog"

	"ckptfs/cmd/ckptfs/heap"
	"ckptfs/cmd/ckptfs/logs"
	"ckptfs/cmd/ckptfs/memory"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/fs/volume"
)

// openVolume opens a store that no daemon holds, for the time of one command.
func (a *app) openVolume(store string, how access) (*volume.Volume, error) {
	o := asOpened(a, store)
	o.ReadOnly = how != readWrite
	v, err := volume.Open(o)
	if err == nil && how == readOnly {
		volume.KeepChecks(v)
	}
	return v, err
}

// asOpened is how a command opens a store.
func asOpened(a *app, store string) volume.Options {
	log := logs.New(a.err, "text", "warn")
	o := volume.Options{
		Dir:           store,
		HotSize:       -1,
		Foreign:       a.foreign,
		RemoteOptions: volume.RemoteOptions{Remote: remote.Open},
		Log: func(level slog.Level, msg string, args ...any) {
			log.Log(context.Background(), level, msg, args...)
		},
	}
	memory.Bound(&o, heap.Budget{All: memory.Default})
	return o
}
