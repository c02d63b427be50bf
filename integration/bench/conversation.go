package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// conversation is a Python program that answers a line with a JSON object on a line.
type conversation struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (b *bench) converse(program string, args ...string) (*conversation, error) {
	c := &conversation{cmd: exec.Command(b.python,
		append([]string{filepath.Join(b.programs, program)}, args...)...)}
	c.cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=scripts/python:"+os.Getenv("PYTHONPATH"))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewScanner(out)
	c.out.Buffer(nil, 1<<24)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if !c.out.Scan() || c.out.Text() != "ready" {
		return nil, errors.Join(fmt.Errorf("%s did not start", program), c.close())
	}
	return c, nil
}

func (c *conversation) ask(v any, command string) error {
	if _, err := io.WriteString(c.in, command+"\n"); err != nil {
		return err
	}
	if !c.out.Scan() {
		return fmt.Errorf("%s: no answer", command)
	}
	if strings.HasPrefix(c.out.Text(), `{"bad"`) {
		return fmt.Errorf("%s: %s", command, c.out.Text())
	}
	return json.Unmarshal(c.out.Bytes(), v)
}

func (c *conversation) close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }
