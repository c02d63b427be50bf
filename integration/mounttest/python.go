package mounttest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/daemon"
)

// pythonServer is programs/server.py: it forks a process for each program, with torch imported already.
type pythonServer struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu   sync.Mutex
	next int
	jobs map[int]*program
	err  error
}

// program is a Python program that runs, or has run.
type program struct {
	name     string
	out, err string // files
	pid      chan int
	rc       chan int
}

var (
	python     *pythonServer
	pythonOnce sync.Once
	pythonErr  error
)

// Interpreter is CKPTFS_PYTHON, or the one of the environment that scripts/setup makes.
func Interpreter() (string, error) {
	if p := os.Getenv("CKPTFS_PYTHON"); p != "" {
		return p, nil
	}
	venv := os.Getenv("CKPTFS_VENV")
	if venv == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		venv = filepath.Join(cache, "ckptfs", "venv")
	}
	p := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(p); err != nil {
		return "", fmt.Errorf("no Python with torch: %w (scripts/setup makes one, CKPTFS_PYTHON names another)", err)
	}
	return p, nil
}

func startPython() (*pythonServer, error) {
	exe, err := Interpreter()
	if err != nil {
		return nil, err
	}
	server, err := filepath.Abs("../programs/server.py")
	if err != nil {
		return nil, err
	}
	s := &pythonServer{cmd: exec.Command(exe, server), jobs: map[int]*program{}}
	// A clone may lie where other users may not enter. That is always so for the programs, which become them.
	if s.cmd.Dir, err = os.MkdirTemp("", "ckptfs-closed-"); err != nil {
		return nil, err
	}
	s.cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=2")
	s.cmd.Stderr = os.Stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go s.listen(stdout)
	return s, nil
}

func (s *pythonServer) listen(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var a struct {
			ID  int
			PID int
			RC  *int
		}
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			break
		}
		s.mu.Lock()
		p := s.jobs[a.ID]
		if a.RC != nil {
			delete(s.jobs, a.ID)
		}
		s.mu.Unlock()
		if a.RC != nil {
			p.rc <- *a.RC
		} else {
			p.pid <- a.PID
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = fmt.Errorf("programs/server.py ended")
	for _, p := range s.jobs {
		close(p.rc)
	}
	s.jobs = nil
}

func (s *pythonServer) start(p *program, in string, args []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	path, err := filepath.Abs(filepath.Join("..", "programs", p.name))
	if err != nil {
		return err
	}
	s.next++
	job := map[string]any{"id": s.next, "program": path, "args": args, "out": p.out, "err": p.err, "in": nil}
	if in != "" {
		job["in"] = in
	}
	line, err := json.Marshal(job)
	if err != nil {
		return err
	}
	s.jobs[s.next] = p
	_, err = s.stdin.Write(append(line, '\n'))
	return err
}

func stopPython() {
	if python == nil {
		return
	}
	python.stdin.Close()
	_ = python.cmd.Wait()
	_ = os.Remove(python.cmd.Dir)
}

// spawn starts a program of programs/; in is a FIFO for its standard input, or empty.
func spawn(t *testing.T, in, name string, args ...string) *program {
	t.Helper()
	pythonOnce.Do(func() { python, pythonErr = startPython() })
	if pythonErr != nil {
		Missing(t, "%v", pythonErr)
	}
	dir := t.TempDir()
	p := &program{
		name: name, out: filepath.Join(dir, "out"), err: filepath.Join(dir, "err"),
		pid: make(chan int, 1), rc: make(chan int, 1),
	}
	if err := python.start(p, in, args); err != nil {
		t.Fatal(err)
	}
	return p
}

// wait returns the program's standard output, or an error with what it said.
func (p *program) wait() (string, error) {
	select {
	case rc, ok := <-p.rc:
		out, _ := os.ReadFile(p.out)
		said, _ := os.ReadFile(p.err)
		if !ok || rc != 0 {
			return string(out), fmt.Errorf("%s: exit status %d: %s", p.name, rc, strings.TrimSpace(string(said)))
		}
		return string(out), nil
	case <-time.After(2 * daemon.Patience):
		select {
		case pid := <-p.pid:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		default:
		}
		return "", fmt.Errorf("%s did not end", p.name)
	}
}

// TryPython runs a program to its end; an error says what it said.
func TryPython(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	return spawn(t, "", name, args...).wait()
}

// RunPython is TryPython of what must not fail.
func RunPython(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := TryPython(t, name, args...)
	if err != nil {
		t.Fatalf("%v\n(arguments: %s)", err, strings.Join(args, " "))
	}
	return out
}

// Session is a program that answers a line with a line.
type Session struct {
	t     *testing.T
	p     *program
	stdin *os.File
	seen  int
}

// StartSession starts a program of programs/ that answers lines; it is killed when the test is over.
func StartSession(t *testing.T, name string, args ...string) *Session {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "in")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Session{t: t, p: spawn(t, fifo, name, args...)}
	var err error
	if s.stdin, err = os.OpenFile(fifo, os.O_RDWR, 0); err != nil { // RDWR: does not wait for the reader
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case pid := <-s.p.pid:
			// hold_mapping.py never sees an end of file: this side holds both ends
			_ = syscall.Kill(pid, syscall.SIGKILL)
			// its mappings are gone then, and nothing is busy with them
			<-s.p.rc
		default:
		}
		s.stdin.Close()
	})
	return s
}

// Answer waits for the next line.
func (s *Session) Answer() string {
	s.t.Helper()
	var lines []string
	err := daemon.Within(4*daemon.Patience, "a line of "+s.p.name, func() bool { // its imports are in it
		select {
		case rc := <-s.p.rc:
			said, _ := os.ReadFile(s.p.err)
			s.t.Fatalf("%s ended with %d: %s", s.p.name, rc, said)
		default:
		}
		out, _ := os.ReadFile(s.p.out)
		lines = strings.SplitAfter(string(out), "\n")
		return len(lines) > s.seen+1
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.seen++
	return strings.TrimSpace(lines[s.seen-1])
}

// Ask sends an empty line and returns the answer.
func (s *Session) Ask() string {
	s.t.Helper()
	return s.Tell("")
}

// Tell sends a line and returns the answer.
func (s *Session) Tell(line string) string {
	s.t.Helper()
	s.Send(line)
	return s.Answer()
}

// Send sends a line; Answer waits for what is said to it.
func (s *Session) Send(line string) {
	s.t.Helper()
	if _, err := s.stdin.WriteString(line + "\n"); err != nil {
		s.t.Fatal(err)
	}
}
