package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
)

//go:embed templates/*.html
var templateFiles embed.FS

// page is what all pages have, and Body, which the template of its own shows.
type page struct {
	Name     string // of the template
	Title    string
	Here     string // the entry of the navigation that it belongs to
	Crumbs   []link
	Commands []string // that print the same
	JSON     string   // its URL
	Refresh  int      // seconds until it is to be fetched again; 0: not
	Body     any
	Data     any  // with ?json=1; a later is called for it
	Part     bool // of a page that has a heading

	Mount string
	Store string
	Write bool
	Proof string
	URL   string // of this page
}

// later makes what few ask for, and takes long.
type later func() any

type link struct{ Text, URL string }

// answer makes a page.
type answer func(ctx context.Context, r *http.Request) (*page, error)

var functions = template.FuncMap{
	"bytes": text.Bytes, "percent": text.Percent,
	"num":   func(n any) string { return humanize.Comma(toInt(n)) },
	"short": short,
	"show":  shown,
	"key":   fieldKey,
	"value": fieldValue,
	"time":  text.Time,
	"ago":   ago,
	"plural": func(n any, noun string) string {
		return text.Plural(toInt(n), noun)
	},
	"at":     pathURL,
	"shape":  shape,
	"shared": sharedText,
	"stored": storedAs,
	"place":  func(text, to string) link { return link{text, to} },
	"share":  func(f float64) string { return fmt.Sprintf("%.3g %%", 100*f) },
	"asset":  assetURL,
	"state":  stateText,
	"hash":   func(h string) string { return h[:min(len(h), 12)] },
}

func toInt(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

// mostShown bounds a name on a page, in runes; its link and its title are whole, up to mostTitle.
const mostShown, mostTitle = 120, 2000

// shown is a name as a page shows it: without what steers text, and not longer than people read.
func shown(s string) string { return cut(s, mostShown) }

func cut(s string, most int) string {
	long := len(s) > 4*most
	if long {
		s = strings.ToValidUTF8(s[:4*most], "�")
	}
	s = text.Printable(s)
	if utf8.RuneCountInString(s) > most || long {
		r := []rune(s)
		half := min(most/2, len(r)/2)
		return string(r[:half]) + "…" + string(r[len(r)-half:])
	}
	return s
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return humanize.Time(t)
}

// number is a float64 in the JSON of a chart: null where it is a gap.
type number float64

// MarshalJSON writes n.
func (n number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 9, 64), nil
}

// short is a number as text.Number has it; "" for none.
func short(n any) string {
	var f float64
	switch n := n.(type) {
	case float64:
		f = n
	case control.Number:
		f = float64(n)
	case *control.Number:
		if n == nil {
			return ""
		}
		f = float64(*n)
	case number:
		f = float64(n)
	default:
		return fmt.Sprint(n)
	}
	return text.Number(f)
}

func shape(s []int64) string {
	parts := make([]string, len(s))
	for i, n := range s {
		parts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(parts, " × ")
}

// pathURL is the page of a path.
func pathURL(p string) string { return withQuery("/path", "path", p) }

// withQuery is a URL with a query of names and values.
func withQuery(to string, kv ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(kv); i += 2 {
		q.Add(kv[i], kv[i+1])
	}
	return to + "?" + q.Encode()
}

// templates are the pages by name, each with the frame around it.
var templates = parse()

func parse() map[string]*template.Template {
	frame := template.Must(template.New("frame.html").Funcs(functions).ParseFS(templateFiles,
		"templates/frame.html"))
	all := map[string]*template.Template{}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for _, n := range names {
		name := strings.TrimSuffix(path.Base(n), ".html")
		if name == "frame" {
			continue
		}
		all[name] = template.Must(template.Must(frame.Clone()).ParseFS(templateFiles, n))
	}
	return all
}

// page serves a page.
func (s *server) page(of answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query()
		if unescape(asked) {
			r.URL.RawQuery = asked.Encode()
		}
		err := refuse(asked)
		var p *page
		if err == nil {
			p, err = s.soon(r, of)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.send(w, r, p)
	}
}

// patiently makes a page, also where one daemon takes over from another meanwhile.
func patiently(ctx context.Context, r *http.Request, of answer) (*page, error) {
	p, err := of(ctx, r)
	for wait := 50 * time.Millisecond; err != nil && known.Away(err) && wait < 2*time.Second; wait *= 2 {
		select {
		case <-time.After(wait):
			p, err = of(ctx, r)
		case <-ctx.Done():
		}
	}
	return p, err
}

// send answers with a page, or with its JSON.
func (s *server) send(w http.ResponseWriter, r *http.Request, p *page) {
	if r.URL.Query().Get("json") == "1" || p.Name == "" {
		w.Header().Set("Content-Type", "application/json")
		enc := text.JSON(w, "")
		if p.Name == "" {
			enc.SetIndent("", "") // the script reads it
		}
		data := p.Data
		if f, ok := data.(later); ok {
			data = f()
		}
		_ = enc.Encode(data)
		return
	}
	s.render(w, r, http.StatusOK, p)
}

func (s *server) render(w http.ResponseWriter, r *http.Request, status int, p *page) {
	p.Store, p.Write, p.Proof, p.URL = s.at.Store, s.write, s.gate.forms, r.URL.RequestURI()
	if s.at.Mount != nil {
		p.Mount = s.at.Mount.Mountpoint
	}
	if p.JSON == "" && p.Data != nil {
		u := *r.URL
		q := u.Query()
		q.Set("json", "1")
		u.RawQuery = q.Encode()
		p.JSON = u.RequestURI()
	}
	t, entry := templates[p.Name], "frame.html"
	if r.Header.Get("Ckptfs-Part") == "main" {
		entry = "main"
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, entry, p); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Ckptfs-Title", url.PathEscape(cut(p.Title, mostShown)))
	if p.Refresh > 0 {
		w.Header().Set("Ckptfs-Refresh", strconv.Itoa(p.Refresh))
	}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// problem is the Body of a page that could not be made.
type problem struct{ Message, Do string }

func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := control.AsError(err)
	status := http.StatusInternalServerError
	switch {
	case r.Context().Err() != nil:
		return // nobody waits for it
	case e.Code == control.CodeNotFound, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		status = http.StatusNotFound
	case e.Code == control.CodeInvalid, e.Code == control.CodeUnsupported:
		status = http.StatusBadRequest
	case e.Code == control.CodeDenied:
		status = http.StatusForbidden
	case known.Away(err):
		status = http.StatusServiceUnavailable
	}
	if r.URL.Query().Get("json") == "1" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = text.JSON(w, "").Encode(map[string]any{"error": e})
		return
	}
	s.render(w, r, status, &page{Name: "problem", Title: http.StatusText(status),
		Part: strings.HasPrefix(r.URL.Path, "/part/"),
		Body: problem{cut(e.Message, mostTitle), s.advice(err, e)}})
}

// advice is what to do about an error.
func (s *server) advice(err error, e *control.Error) string {
	if e.Do == "" && known.Away(err) {
		return "No daemon serves " + s.at.Store + " now. Mount it again, and load this page again."
	}
	return e.Do
}

// full is a path as commands take it, quoted for a shell.
func (s *server) full(p string) string { return text.Word(s.at.Full(p)) }

// root is the store's own path, for commands about all of it.
func (s *server) root() string {
	if s.at.Mount != nil {
		return text.Word(s.at.Mount.Mountpoint)
	}
	return text.Word(s.at.Store)
}

// crumbs are links to the folders above a path, and to it.
func crumbs(p string) []link {
	out := []link{{"files", pathURL("")}}
	if p == "" {
		return out
	}
	parts := strings.Split(p, "/")
	for i := range parts {
		out = append(out, link{shown(parts[i]), pathURL(strings.Join(parts[:i+1], "/"))})
	}
	return out
}
