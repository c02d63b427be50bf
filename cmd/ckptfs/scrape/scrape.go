// Package scrape answers Prometheus.
package scrape

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"ckptfs/fs/metrics"
)

// Listen takes the address of --metrics-listen, before anything is mounted.
func Listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %s: %w; give a free address of this machine, such as 127.0.0.1:9464", addr, err)
	}
	return ln, nil
}

// Serve answers scrapes on ln until stop.
func Serve(ln net.Listener, src metrics.Source, build metrics.Build) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(ctx, src, build))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // until Close
	}()
	return func() {
		cancel()
		srv.Close()
		<-done
	}
}
