package mounttest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.DaemonPID()))
	m.Must(err)
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.ParseInt(strings.TrimSpace(after[:strings.Index(after, "kB")]), 10, 64)
	m.Must(err)
	return kb << 10
}
