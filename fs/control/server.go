package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// Server answers on a store's socket.
type Server struct {
	http *http.Server
	dir  *os.File // the socket's folder
	name string
	done chan struct{}
}

type peerKey struct{}

// Serve makes the socket in the store's folder and answers on it with h until Close. The caller holds the
// store's lock, so a socket that is there already is a dead daemon's, and is replaced.
func Serve(store string, h http.Handler) (*Server, error) {
	return ServeAt(filepath.Join(store, SocketName), h)
}

// ServeAt is Serve on a socket elsewhere. No other server may use its name.
func ServeAt(socket string, h http.Handler) (*Server, error) {
	folder, name := filepath.Split(socket)
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	ln, err := listen(dir, name)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("control socket %s: %w", socket, err)
	}
	s := &Server{dir: dir, name: name, done: make(chan struct{})}
	s.http = &http.Server{
		Handler: allowed(h, uint32(os.Geteuid())),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if cred, err := peerOf(c); err == nil {
				ctx = context.WithValue(ctx, peerKey{}, cred.Uid)
			}
			return ctx
		},
	}
	go func() {
		defer close(s.done)
		// always ErrServerClosed after Close; an accept that fails for good leaves a mount without a socket
		_ = s.http.Serve(ln)
	}()
	return s, nil
}

// listen binds under another name and renames, so that the socket never exists with a wider mode and replaces
// a stale one at once.
func listen(dir *os.File, name string) (*net.UnixListener, error) {
	fresh := in(dir, name+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, in(dir, name))
	}
	if err != nil {
		ln.Close()
		os.Remove(fresh)
		return nil, err
	}
	return ln, nil
}

// in names a file in an open directory. The address of a unix socket holds 107 bytes, a store's path any
// number.
func in(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// allowed lets only uid and root through.
func allowed(h http.Handler, uid uint32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, known := r.Context().Value(peerKey{}).(uint32)
		if !known || peer != uid && peer != 0 {
			writeError(w, &Error{Code: CodeDenied, Errno: "EACCES", Message: fmt.Sprintf("the store is in use by user %d, who alone (with root) may ask its daemon", uid)})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Close removes the socket, lets the requests in progress end until ctx does, and then cuts them off.
func (s *Server) Close(ctx context.Context) error {
	err := os.Remove(in(s.dir, s.name))
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	<-s.done
	s.dir.Close()
	return err
}
