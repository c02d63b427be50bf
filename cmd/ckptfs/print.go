package main

import (
	"encoding/json"
	"io"
)

// show prints the result: as JSON if asked, else by human.
func (a *app) show(v any, human func(io.Writer)) error {
	if a.json {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	human(a.out)
	return nil
}
