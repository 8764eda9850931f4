package console

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed static
var static embed.FS

// files serves the embedded files; a directory is none, but for the page itself.
func files() http.Handler {
	dir, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the name is a constant
	}
	serve := http.StripPrefix(Path, http.FileServerFS(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		if name := r.URL.Path[len(Path):]; name != "" {
			if info, err := fs.Stat(dir, name); err != nil || info.IsDir() || name == "index.html" {
				http.NotFound(w, r)
				return
			}
		}
		serve.ServeHTTP(w, r)
	})
}
