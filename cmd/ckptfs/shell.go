package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// shell is the program to commands in packages of their own.
type shell struct{ a *app }

func (s shell) Show(v any, human func(io.Writer)) error { return s.a.show(v, human) }

func (s shell) Usage(cmd *cobra.Command, message string) error {
	return &usageError{msg: message, cmd: cmd}
}

func (s shell) Store(path string) (string, error) {
	p, err := find(path)
	if err != nil {
		return "", err
	}
	return p.store, nil
}

// Doing says it on the terminal's last line.
func (s shell) Doing() (say func(what string), done func()) {
	if !s.a.tty || s.a.json {
		return func(string) {}, func() {}
	}
	const clear = "\r\x1b[K"
	return func(what string) { fmt.Fprint(s.a.err, clear, what) }, func() { fmt.Fprint(s.a.err, clear) }
}
