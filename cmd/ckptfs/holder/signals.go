package holder

import (
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// signals collects the signals that are to be passed on. While there are some, wake is readable.
type signals struct {
	c    chan os.Signal
	wake int // an eventfd
	done chan struct{}

	mu   sync.Mutex
	came []unix.Signal
}

func watchSignals() (*signals, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	s := &signals{c: make(chan os.Signal, 16), wake: wake, done: make(chan struct{})}
	signal.Notify(s.c, unix.SIGTERM, unix.SIGINT)
	go s.collect()
	return s, nil
}

func (s *signals) collect() {
	defer close(s.done)
	for sig := range s.c {
		s.mu.Lock()
		s.came = append(s.came, sig.(unix.Signal))
		s.mu.Unlock()
		_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a sum; any but 0 wakes
	}
}

// take gives what came since it was called last.
func (s *signals) take() []unix.Signal {
	var sum [8]byte
	_, _ = unix.Read(s.wake, sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	came := s.came
	s.came = nil
	return came
}

func (s *signals) close() {
	signal.Stop(s.c)
	close(s.c)
	<-s.done
	unix.Close(s.wake)
}
