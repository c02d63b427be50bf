// Package transport is what all buckets behind HTTP share: how long a server may take, and what it means for
// a request that it failed.
//
//	5 s     to connect
//	15 s    to the first byte of an answer, after all of the request was sent
//	10 s    without a byte, in either direction
//
// A request is made once. What is made again, and when, is for package patient.
package transport

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	connectTime   = 5 * time.Second
	firstByteTime = 15 * time.Second
	silence       = 10 * time.Second
)

// connections to one server that are kept when they are idle.
const connections = 64

// New makes requests over the network.
func New() *http.Transport {
	dialer := &net.Dialer{Timeout: connectTime}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return impatient{c}, nil
		},
		TLSHandshakeTimeout:   connectTime,
		ResponseHeaderTimeout: firstByteTime,
		MaxIdleConnsPerHost:   connections,
		IdleConnTimeout:       time.Minute,
		ReadBufferSize:        256 << 10,
		WriteBufferSize:       256 << 10,
		DisableCompression:    true,
	}
}

// impatient is a connection that gives up writing to a peer that takes nothing.
type impatient struct{ net.Conn }

func (c impatient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
