package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Server answers on a store's socket.
type Server struct {
	http *http.Server
	dir  *os.File // the socket's folder
	name string
	done chan struct{}
}

type (
	peerKey   struct{}
	endingKey struct{} // a context that ends when Close begins
)

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
	return ServeIn(dir, name, h)
}

// ServeIn is ServeAt in a folder that is open. It is closed with the server, and after an error.
func ServeIn(dir *os.File, name string, h http.Handler) (*Server, error) {
	ln, err := listen(dir, name)
	if err != nil {
		err = fmt.Errorf("control socket %s: %w", filepath.Join(dir.Name(), name), err)
		dir.Close()
		return nil, err
	}
	s := &Server{dir: dir, name: name, done: make(chan struct{})}
	ending, end := context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler: allowed(h, uint32(os.Geteuid())),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			roomToSend(c)
			if cred, err := peerOf(c); err == nil {
				ctx = context.WithValue(ctx, peerKey{}, cred)
			}
			return context.WithValue(ctx, endingKey{}, ending)
		},
	}
	s.http.RegisterOnShutdown(end)
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
	// The mode is set before there is a name: by the name, another file could be meant.
	conf := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var cerr error
		err := c.Control(func(fd uintptr) { cerr = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, cerr)
	}}
	l, err := conf.Listen(context.Background(), "unix", fresh)
	if err != nil {
		return nil, err
	}
	ln := l.(*net.UnixListener)
	ln.SetUnlinkOnClose(false)
	if err := os.Rename(fresh, in(dir, name)); err != nil {
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
		peer, known := r.Context().Value(peerKey{}).(*unix.Ucred)
		if !known || peer.Uid != uid && peer.Uid != 0 {
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
