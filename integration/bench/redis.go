package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// redis is a Redis server of its own, in memory, behind a unix socket, and one connection. A client needs of
// its protocol two commands.
type redis struct {
	cmd *exec.Cmd
	c   net.Conn
	r   *bufio.Reader
	w   *bufio.Writer
}

func startRedis(dir string) (*redis, error) {
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly",
		"no", "--dir", dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w (scripts/setup-peers installs it)", err)
	}
	s := &redis{cmd: cmd}
	var err error
	for range 500 {
		if s.c, err = net.Dial("unix", socket); err == nil {
			s.r, s.w = bufio.NewReaderSize(s.c, 1<<20), bufio.NewWriterSize(s.c, 1<<16)
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(err, s.close())
}

func (s *redis) close() error {
	if s.c != nil {
		s.c.Close()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	return nil
}

// send writes a command without waiting for its answer.
func (s *redis) send(args ...[]byte) error {
	fmt.Fprintf(s.w, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(s.w, "$%d\r\n", len(a))
		s.w.Write(a)
		s.w.WriteString("\r\n")
	}
	return s.w.Flush()
}

// line reads a line that begins with kind and returns the number after that.
func (s *redis) line(kind byte) (int, error) {
	text, err := s.r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if text[0] == '+' && kind == '+' {
		return 0, nil
	}
	if text[0] != kind {
		return 0, fmt.Errorf("redis: %q", text)
	}
	return strconv.Atoi(string(text[1 : len(text)-2]))
}

const batch = 1000 // keys of one MGET; the next is under way while one is answered

func (s *redis) set(models []scanned) error {
	for i := range models {
		if err := s.send([]byte("SET"), key(i), models[i].value()); err != nil {
			return err
		}
		if _, err := s.line('+'); err != nil {
			return err
		}
	}
	return nil
}

func key(i int) []byte { return fmt.Appendf(nil, "m%d", i) }

// mget asks for the models that begin at i.
func (s *redis) mget(i, n int) error {
	args := [][]byte{[]byte("MGET")}
	for k := i; k < min(i+batch, n); k++ {
		args = append(args, key(k))
	}
	return s.send(args...)
}

// ask fetches every model and compares it with g.
func (s *redis) ask(p *prefixer, g compact, n int) (best answer, err error) {
	p.ask(g)
	value := make([]byte, 1<<16)
	if err := s.mget(0, n); err != nil {
		return best, err
	}
	for i := 0; i < n; i += batch {
		if i+batch < n {
			if err := s.mget(i+batch, n); err != nil {
				return best, err
			}
		}
		values, err := s.line('*')
		if err != nil {
			return best, err
		}
		for k := range values {
			size, err := s.line('$')
			if err != nil {
				return best, err
			}
			if size < 10 || size+2 > len(value) {
				return best, fmt.Errorf("redis: a value of %d bytes", size)
			}
			if _, err := io.ReadFull(s.r, value[:size+2]); err != nil {
				return best, err
			}
			best.offer(p.length(compactOf(value[8:size])),
				math.Float64frombits(binary.LittleEndian.Uint64(value)), uint64(i+k))
		}
	}
	return best, nil
}
