package status

import (
	"net/http"
)

// getOnly answers other methods than GET with 405.
func getOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	}
}

// writeBody writes the whole body. An error means that the client is gone.
func writeBody(w http.ResponseWriter, body []byte) {
	_, _ = w.Write(body)
}
