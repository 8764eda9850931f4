package cloudtoken

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
)

// loginScope is the only right that the token has.
const loginScope = "https://www.googleapis.com/auth/sqlservice.login"

// google asks the metadata service of Compute Engine, GKE or Cloud Run for a token of the
// workload's service account ("About VM metadata" and "IAM authentication" of Cloud SQL).
func (a *asker) google(ctx context.Context) (Token, error) {
	at := "http://" + cmp.Or(a.env("GCE_METADATA_HOST"), "169.254.169.254") +
		"/computeMetadata/v1/instance/service-accounts/default/token?scopes=" + url.QueryEscape(loginScope)
	return a.bearer(a.fetch(ctx, a.local, http.MethodGet, at, map[string]string{"Metadata-Flavor": "Google"}, nil))
}
