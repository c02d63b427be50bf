package main

import (
	"io"

	"ckptfs/cmd/ckptfs/text"
)

// show prints the result: as JSON if asked, else by human.
func (a *app) show(v any, human func(io.Writer)) error {
	if a.json {
		return text.JSON(a.out, "").Encode(v)
	}
	human(a.out)
	return nil
}
