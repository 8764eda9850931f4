package cloudtoken

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// databases is the resource that tokens for Azure's open-source databases are for.
const databases = "https://ossrdbms-aad.database.windows.net"

// azure gets a token of the workload's identity: in AKS with workload identity by exchange of the
// mounted token, in App Service and Container Apps from their endpoint, else from the metadata
// service of the machine. AZURE_CLIENT_ID chooses among several identities.
func (a *asker) azure(ctx context.Context) (Token, error) {
	return a.bearer(a.askAzure(ctx))
}

func (a *asker) askAzure(ctx context.Context) ([]byte, error) {
	identity := a.env("AZURE_CLIENT_ID")
	query := url.Values{"resource": {databases}}
	if identity != "" {
		query.Set("client_id", identity)
	}
	switch {
	case a.env("AZURE_FEDERATED_TOKEN_FILE") != "":
		assertion, err := a.fileNamedBy("AZURE_FEDERATED_TOKEN_FILE")
		if err != nil {
			return nil, err
		}
		tenant := a.env("AZURE_TENANT_ID")
		if tenant == "" || identity == "" {
			return nil, fmt.Errorf("AZURE_FEDERATED_TOKEN_FILE is set, but AZURE_TENANT_ID or AZURE_CLIENT_ID is not")
		}
		at := strings.TrimRight(cmp.Or(a.env("AZURE_AUTHORITY_HOST"), "https://login.microsoftonline.com"), "/") +
			"/" + url.PathEscape(tenant) + "/oauth2/v2.0/token"
		return a.fetch(ctx, a.public, http.MethodPost, at, nil, url.Values{
			"grant_type": {"client_credentials"}, "client_id": {identity}, "scope": {databases + "/.default"},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {assertion},
		})
	case a.env("IDENTITY_ENDPOINT") != "":
		query.Set("api-version", "2019-08-01")
		return a.fetch(ctx, a.local, http.MethodGet, a.env("IDENTITY_ENDPOINT")+"?"+query.Encode(),
			map[string]string{"X-IDENTITY-HEADER": a.env("IDENTITY_HEADER")}, nil)
	default:
		query.Set("api-version", "2018-02-01")
		at := cmp.Or(a.env("AZURE_POD_IDENTITY_AUTHORITY_HOST"), "http://169.254.169.254")
		return a.fetch(ctx, a.local, http.MethodGet,
			strings.TrimRight(at, "/")+"/metadata/identity/oauth2/token?"+query.Encode(),
			map[string]string{"Metadata": "true"}, nil)
	}
}
