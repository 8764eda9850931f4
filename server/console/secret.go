package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// lastApplied is where kubectl apply keeps the whole object once more.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// hide replaces what a Secret holds by how long it is, and by a fingerprint that shows
// a change.
func (v viewer) hide(fields map[string]any) {
	for _, part := range []string{"data", "stringData"} {
		values, ok := fields[part].(map[string]any)
		if !ok {
			if _, there := fields[part]; there {
				fields[part] = "hidden"
			}
			continue
		}
		for name, value := range values {
			text, ok := value.(string)
			raw := []byte(text)
			if decoded, err := base64.StdEncoding.DecodeString(text); part == "data" && err == nil {
				raw = decoded
			}
			if values[name] = "hidden"; ok {
				values[name] = fmt.Sprintf("hidden: %d bytes, fingerprint %s", len(raw), v.fingerprint(raw))
			}
		}
	}
	metadata, _ := fields["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if _, ok := annotations[lastApplied]; ok {
		annotations[lastApplied] = "hidden"
	}
}

// newFingerprint returns a function that gives different values different names, from
// which nobody can find the value by trying, not even a short one: the key is random,
// and this process's.
func newFingerprint() func([]byte) string {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return func(value []byte) string {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write(value) // nor does this
		return hex.EncodeToString(mac.Sum(nil)[:4])
	}
}
