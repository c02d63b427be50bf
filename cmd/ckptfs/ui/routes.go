package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
)

//go:embed assets
var assets embed.FS

// assetURL is where an asset is. It is another one with each version of it: a browser keeps what it loaded.
func assetURL(name string) (string, error) {
	p, err := assets.ReadFile("assets/" + name)
	sum := sha256.Sum256(p)
	return "/assets/" + name + "?v=" + hex.EncodeToString(sum[:8]), err
}

// routes are all pages. What takes longer than a person waits is a part of its own, which the page fetches.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	for where, of := range map[string]answer{
		"/{$}":           s.store,
		"/runs":          s.runList,
		"/run":           s.run,
		"/compare":       s.compare,
		"/path":          s.path,
		"/tensor":        s.tensor,
		"/diff":          s.diff,
		"/lineage":       s.lineage,
		"/space":         s.space,
		"/part/space":    s.spacePart,
		"/part/removal":  s.removalPart,
		"/part/tensors":  s.tensorsPart,
		"/part/values":   s.valuesPart,
		"/part/diff":     s.diffPart,
		"/part/lineage":  s.lineagePart,
		"/part/ancestry": s.ancestryPart,
		"/part/moves":    s.movesPart,
	} {
		mux.HandleFunc("GET "+where, s.page(of))
	}
	mux.HandleFunc("POST /do", s.do)
	files := http.FileServerFS(assets)
	mux.HandleFunc("GET /assets/{name}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := fs.Stat(assets, "assets/"+r.PathValue("name")); err != nil {
			s.fail(w, r, noPage(r))
			return
		}
		w.Header().Set("Cache-Control", "private, max-age=3600")
		files.ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, noPage(r))
	})
	return mux
}

func noPage(r *http.Request) error {
	return notThere("there is no such page: %s", cut(r.URL.Path, mostShown))
}
