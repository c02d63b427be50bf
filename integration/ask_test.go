package integration

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

// asker returns a function that asks the daemon, by its socket, about a path, whatever the path.
func (m *mount) asker() func(method, verb, path string) (int, string) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(m.Store, "control.sock"))
	}}}
	m.t.Cleanup(client.CloseIdleConnections)
	return func(method, verb, path string) (int, string) {
		m.t.Helper()
		req, err := http.NewRequest(method, "http://ckptfs/v1/"+verb+"?path="+url.QueryEscape(path), nil)
		m.must(err)
		resp, err := client.Do(req)
		m.must(err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		m.must(err)
		return resp.StatusCode, string(b)
	}
}

// peakRSS is the most memory that the daemon had so far, in bytes.
func (m *mount) peakRSS() int64 {
	m.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PIDs()[0]))
	m.must(err)
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.ParseInt(strings.TrimSpace(after[:strings.Index(after, "kB")]), 10, 64)
	m.must(err)
	return kb << 10
}
