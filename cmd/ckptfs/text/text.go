// Package text makes what commands print of numbers, names, tables and logs, and JSON.
package text

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"ckptfs/fs/control"
)

// Bytes is a number of bytes in units of 1,024: "512 B", "44.7 MiB". A difference may be less than nothing.
func Bytes(n int64) string {
	if n <= -1024 {
		return "-" + humanize.IBytesN(uint64(-n), 3)
	}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	return humanize.IBytesN(uint64(n), 3)
}

// Number is a number to four digits, and a whole one below a million as it is: "12", "0.0123", "nan".
func Number(f float64) string {
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		return control.Number(f).String()
	case f == math.Trunc(f) && math.Abs(f) < 1e6:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprintf("%.4g", f)
}

// Time is a moment as this machine's clock shows it; "" for none.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// JSON writes values for people and programs. Lines but the first begin with prefix.
func JSON(w io.Writer, prefix string) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent(prefix, "  ")
	return enc
}

// Plural is "1 file", "12,345 files".
func Plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(n) + " " + noun + "s"
}

// Printable quotes what could steer a terminal: names in a store are anybody's.
func Printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// Word is s as a word of a shell's command line, for commands that a message gives.
func Word(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:,@%", r)
	}) || !utf8.ValidString(s) {
		return quoted(s)
	}
	return s
}

// Command is a command line for a shell.
func Command(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Word(w)
	}
	return strings.Join(quoted, " ")
}

// quoted quotes as every shell reads it, and what could steer a terminal as bash and zsh do.
func quoted(s string) string {
	if Printable(s) == s {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}

// Pairs prints a label and a value a line, the values under each other. Lines with an empty value are left
// out.
func Pairs(w io.Writer, kv ...string) {
	wide := 0
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] != "" {
			wide = max(wide, len(kv[i]))
		}
	}
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] != "" {
			fmt.Fprintf(w, "%-*s  %s\n", wide, kv[i], kv[i+1])
		}
	}
}

// Table prints rows under a head, columns aligned. A column whose head begins with ">" is flush right.
func Table(out io.Writer, head []string, rows [][]string) {
	w := bufio.NewWriter(out)
	defer w.Flush()
	wide := make([]int, len(head))
	right := make([]bool, len(head))
	titles := make([]string, len(head))
	for i, h := range head {
		titles[i], right[i] = strings.CutPrefix(h, ">")
	}
	rows = append([][]string{titles}, rows...)
	for _, row := range rows {
		for i, cell := range row {
			wide[i] = max(wide[i], width(cell))
		}
	}
	paint := Paints(out)
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", wide[i]-width(cell))
			if n == 0 {
				cell = paint.Head(cell)
			}
			if i > 0 {
				b.WriteString("  ")
			}
			if right[i] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// Percent is a share, as people read it; less than all is never 100 %.
func Percent(share float64) string {
	digits := strconv.FormatFloat(100*share, 'f', 1, 64)
	switch {
	case share == 1:
		digits = "100"
	case digits == "100.0":
		digits = "99.9"
	}
	return strings.TrimSuffix(digits, ".0") + " %"
}
