package mounttest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"ckptfs/integration/daemon"
)

// Asker returns a function that asks the daemon, by its socket, about a path, whatever the path.
func (m *Mount) Asker() func(method, verb, path string) (int, string) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(m.Store, "control.sock"))
	}}}
	m.T.Cleanup(client.CloseIdleConnections)
	return func(method, verb, path string) (int, string) {
		m.T.Helper()
		req, err := http.NewRequest(method, "http://ckptfs/v1/"+verb+"?path="+url.QueryEscape(path), nil)
		m.Must(err)
		resp, err := client.Do(req)
		m.Must(err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		m.Must(err)
		return resp.StatusCode, string(b)
	}
}

// PeakRSS is the most memory that the daemon had so far, in bytes.
func (m *Mount) PeakRSS() int64 {
	m.T.Helper()
	n, err := daemon.Memory(m.DaemonPID(), "VmHWM")
	m.Must(err)
	return n
}
