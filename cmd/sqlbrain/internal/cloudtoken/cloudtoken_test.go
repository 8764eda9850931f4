package cloudtoken

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// workload is an asker with an environment, files and a clock of the test.
type workload struct {
	*asker
	clock time.Time
}

func newWorkload(env, files map[string]string) *workload {
	w := &workload{asker: newAsker(), clock: noon}
	w.getenv = func(name string) string { return env[name] }
	w.now = func() time.Time { return w.clock }
	w.readFile = func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return w
}

// service stands in for a provider's service. It keeps what it was asked.
type service struct {
	*httptest.Server
	mu    sync.Mutex
	asked []*http.Request
}

func serve(t *testing.T, answer http.HandlerFunc) *service {
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		s.mu.Lock()
		s.asked = append(s.asked, r)
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func (w *workload) token(t *testing.T, provider string) Token {
	t.Helper()
	source, err := w.source(provider, "db.example.eu-central-1.rds.amazonaws.com:3306", "sqlbrain")
	require.NoError(t, err)
	token, err := source(t.Context())
	require.NoError(t, err)
	return token
}

// fails returns the error of a token.
func (w *workload) fails(t *testing.T, provider string) error {
	t.Helper()
	source, err := w.source(provider, "db.example.eu-central-1.rds.amazonaws.com:3306", "sqlbrain")
	require.NoError(t, err)
	_, err = source(t.Context())
	require.Error(t, err)
	return err
}

// TestSignatures compares with what the signer of Amazon's SDK for Go (v1.40.0) gives for the
// same credentials and time.
func TestSignatures(t *testing.T) {
	at := time.Date(2026, 11, 23, 7, 30, 0, 0, time.UTC)
	c := Credentials{ID: "AKIDEXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	const database, region, user = "db.cluster-abc.eu-central-1.rds.amazonaws.com:3306", "eu-central-1", "sql brain+1"
	require.Equal(t, database+"/?Action=connect&DBUser=sql%20brain%2B1&X-Amz-Algorithm=AWS4-HMAC-SHA256"+
		"&X-Amz-Credential=AKIDEXAMPLE%2F20261123%2Feu-central-1%2Frds-db%2Faws4_request&X-Amz-Date=20261123T073000Z&X-Amz-Expires=900"+
		"&X-Amz-SignedHeaders=host&X-Amz-Signature=6c5e8e3c16726737c4aa5d8658cb1aa884c36ecd47b13bb6fb00e50f220ec58f",
		c.token(database, region, user, at))
	c.Session = "FwoGZXIvYXdzEXAMPLE//token+with=signs=="
	require.Equal(t, database+"/?Action=connect&DBUser=sql%20brain%2B1&X-Amz-Algorithm=AWS4-HMAC-SHA256"+
		"&X-Amz-Credential=AKIDEXAMPLE%2F20261123%2Feu-central-1%2Frds-db%2Faws4_request&X-Amz-Date=20261123T073000Z&X-Amz-Expires=900"+
		"&X-Amz-Security-Token=FwoGZXIvYXdzEXAMPLE%2F%2Ftoken%2Bwith%3Dsigns%3D%3D"+
		"&X-Amz-SignedHeaders=host&X-Amz-Signature=12e3490b138833e4cb454994406def417c87f495c255c2d2dba7d1f1c5332752",
		c.token(database, region, user, at))
}

func TestRegions(t *testing.T) {
	for address, region := range map[string]string{
		"a.b.eu-central-1.rds.amazonaws.com:3306":     "eu-central-1",
		"a.cluster-b.us-east-1.rds.amazonaws.com":     "us-east-1",
		"a.b.rds.cn-north-1.amazonaws.com.cn:3306":    "cn-north-1",
		"a.us-gov-west-1.rds.amazonaws.com:3306":      "us-gov-west-1",
		"db.example:3306":                             "",
		"eu-central-1.rds.amazonaws.com.example:3306": "",
	} {
		w := newWorkload(map[string]string{"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "secret"}, nil)
		source, err := w.source("aws", address, "u")
		if region == "" {
			require.ErrorContains(t, err, "AWS_REGION is not set", address)
			continue
		}
		require.NoError(t, err)
		token, err := source(t.Context())
		require.NoError(t, err)
		require.Contains(t, token.Password, "%2F"+region+"%2Frds-db%2F", address)
	}
	_, err := newWorkload(nil, nil).source("aws", "a.x.rds.amazonaws.com:1,b.x.rds.amazonaws.com:1", "u")
	require.ErrorContains(t, err, "names several")
	w := newWorkload(map[string]string{"AWS_REGION": "sa-east-1", "AWS_ACCESS_KEY_ID": "AK"}, nil)
	require.Contains(t, w.token(t, "aws").Password, "%2Fsa-east-1%2F", "the variable comes first")
}

func TestUnknownProviderIsRefused(t *testing.T) {
	_, err := New("oracle", "db:3306", "u")
	require.EqualError(t, err, "must be one of aws, google, azure")
}

const role = `{"AccessKeyId": "ASIA1", "SecretAccessKey": "s3cret-key", "Token": "session-token", "Expiration": "2026-11-23T13:00:00Z"}`

func TestCredentialsOfVariablesDoNotExpire(t *testing.T) {
	w := newWorkload(map[string]string{"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_SESSION_TOKEN": "session"}, nil)
	token := w.token(t, "aws")
	require.Contains(t, token.Password, "X-Amz-Credential=AK%2F")
	require.Contains(t, token.Password, "X-Amz-Security-Token=session&")
	require.Equal(t, noon.Add(rdsTokenLife-reserve), token.Until)
}

func TestMachineRole(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" &&
			r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
			says("the-session")(w, r)
		case r.Header.Get("X-aws-ec2-metadata-token") != "the-session":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			says("database-role\n")(w, r)
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/database-role":
			says(role)(w, r)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	w := newWorkload(map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": s.URL}, nil)
	source, err := w.source("aws", "db.example.eu-central-1.rds.amazonaws.com:3306", "sqlbrain")
	require.NoError(t, err)
	token, err := source(t.Context())
	require.NoError(t, err)
	require.Contains(t, token.Password, "X-Amz-Credential=ASIA1%2F")
	require.Contains(t, token.Password, "X-Amz-Security-Token=session-token&")
	require.Len(t, s.asked, 3)

	// Credentials are kept until shortly before they expire; no token outlives them.
	w.clock = noon.Add(55 * time.Minute)
	token, err = source(t.Context())
	require.NoError(t, err)
	require.Len(t, s.asked, 3)
	require.Equal(t, noon.Add(time.Hour-reserve), token.Until)
	w.clock = noon.Add(59 * time.Minute)
	_, err = source(t.Context())
	require.NoError(t, err)
	require.Len(t, s.asked, 6)

	w = newWorkload(map[string]string{"AWS_EC2_METADATA_DISABLED": "true"}, nil)
	require.ErrorContains(t, w.fails(t, "aws"), "AWS_EC2_METADATA_DISABLED is set")
}

func TestWebIdentity(t *testing.T) {
	s := serve(t, says(`<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
		<Credentials><SessionToken>st</SessionToken><SecretAccessKey>sk</SecretAccessKey><Expiration>2026-11-23T13:00:00Z</Expiration>
		<AccessKeyId>ASIA2</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`))
	env := map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/db",
		"AWS_ENDPOINT_URL_STS": s.URL}
	w := newWorkload(env, map[string]string{"/token": "the.web.token\n"})
	require.Contains(t, w.token(t, "aws").Password, "X-Amz-Credential=ASIA2%2F")
	require.Equal(t, url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "WebIdentityToken": {"the.web.token"},
		"RoleArn": {"arn:aws:iam::1:role/db"}, "RoleSessionName": {"sqlbrain"},
	}, s.asked[0].PostForm)

	err := newWorkload(env, nil).fails(t, "aws")
	require.ErrorContains(t, err, "AWS_WEB_IDENTITY_TOKEN_FILE")
	require.ErrorIs(t, err, fs.ErrNotExist)
	env["AWS_ENDPOINT_URL_STS"] = serve(t, says("<html>")).URL
	require.ErrorContains(t, newWorkload(env, map[string]string{"/token": "t"}).fails(t, "aws"), "no credentials")
}

func TestContainerRole(t *testing.T) {
	s := serve(t, says(role))
	w := newWorkload(map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": s.URL + "/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/pod",
	}, map[string]string{"/pod": "pod-token"})
	require.Contains(t, w.token(t, "aws").Password, "X-Amz-Credential=ASIA1%2F")
	require.Equal(t, "/v1/credentials", s.asked[0].URL.Path)
	require.Equal(t, "pod-token", s.asked[0].Header.Get("Authorization"))
	for address, safe := range map[string]bool{
		"http://169.254.170.23/v1/credentials": true, "http://[fd00:ec2::23]/v1": true, "https://creds.example/": true,
		"http://localhost:1/":   true,
		"http://creds.example/": false, "http://169.254.169.254/": false, "ftp://127.0.0.1/": false, "http://%": false,
	} {
		require.Equal(t, safe, safeForCredentials(address), address)
	}
	w = newWorkload(map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://creds.example/"}, nil)
	require.ErrorContains(t, w.fails(t, "aws"), "must be https")
}

func TestGoogle(t *testing.T) {
	s := serve(t, says(`{"access_token": "ya29.token", "expires_in": 3599, "token_type": "Bearer"}`))
	w := newWorkload(map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(s.URL, "http://")}, nil)
	require.Equal(t, Token{Password: "ya29.token", Until: noon.Add(3599*time.Second - reserve)}, w.token(t, "google"))
	require.Equal(t, "/computeMetadata/v1/instance/service-accounts/default/token", s.asked[0].URL.Path)
	require.Equal(t, loginScope, s.asked[0].URL.Query().Get("scopes"))
	require.Equal(t, "Google", s.asked[0].Header.Get("Metadata-Flavor"))
}

func TestAzure(t *testing.T) {
	t.Run("the machine's identity", func(t *testing.T) {
		s := serve(t, says(`{"access_token": "eyJ.machine", "expires_in": "86400", "expires_on": "1795435200"}`))
		w := newWorkload(map[string]string{"AZURE_POD_IDENTITY_AUTHORITY_HOST": s.URL,
			"AZURE_CLIENT_ID": "one-of-several"}, nil)
		require.Equal(t, Token{Password: "eyJ.machine", Until: noon.Add(24*time.Hour - reserve)}, w.token(t, "azure"))
		require.Equal(t, "true", s.asked[0].Header.Get("Metadata"))
		require.Equal(t, url.Values{"resource": {databases}, "api-version": {"2018-02-01"}, "client_id": {"one-of-several"}},
			s.asked[0].URL.Query())
	})
	t.Run("App Service", func(t *testing.T) {
		s := serve(t, says(fmt.Sprintf(`{"access_token": "eyJ.app", "expires_on": "%d"}`, noon.Add(time.Hour).Unix())))
		w := newWorkload(map[string]string{"IDENTITY_ENDPOINT": s.URL + "/msi/token", "IDENTITY_HEADER": "guard"}, nil)
		require.WithinDuration(t, noon.Add(time.Hour-reserve), w.token(t, "azure").Until, 0)
		require.Equal(t, "guard", s.asked[0].Header.Get("X-IDENTITY-HEADER"))
	})
	t.Run("workload identity", func(t *testing.T) {
		s := serve(t, says(`{"access_token": "eyJ.pod", "expires_in": 3600}`))
		env := map[string]string{"AZURE_FEDERATED_TOKEN_FILE": "/token", "AZURE_CLIENT_ID": "client",
			"AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": s.URL + "/"}
		w := newWorkload(env, map[string]string{"/token": "projected"})
		require.Equal(t, "eyJ.pod", w.token(t, "azure").Password)
		require.Equal(t, "/tenant/oauth2/v2.0/token", s.asked[0].URL.Path)
		require.Equal(t, "projected", s.asked[0].PostForm.Get("client_assertion"))
		require.Equal(t, databases+"/.default", s.asked[0].PostForm.Get("scope"))
		delete(env, "AZURE_TENANT_ID")
		require.ErrorContains(t, w.fails(t, "azure"), "AZURE_TENANT_ID")
	})
}

// TestRefusals: errors explain, on one line, and quote no secret that was sent.
func TestRefusals(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, "AADSTS70021:\n no matching federated identity for %s", r.PostForm.Get("client_assertion"))
		_, _ = w.Write([]byte(strings.Repeat("é", mostOfAReason)))
	})
	env := map[string]string{"AZURE_FEDERATED_TOKEN_FILE": "/token", "AZURE_CLIENT_ID": "client",
		"AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": s.URL}
	err := newWorkload(env, map[string]string{"/token": "projected-secret"}).fails(t, "azure")
	require.ErrorContains(t, err, "400 Bad Request: AADSTS70021: no matching federated identity for xxxxx")
	require.NotContains(t, err.Error(), "projected-secret")
	require.Less(t, len(err.Error()), 500)

	for name, answer := range map[string]http.HandlerFunc{
		"no token":  says(`{}`),
		"no JSON":   says(`<html>`),
		"too long":  says(strings.Repeat(" ", mostOfAnAnswer+1)),
		"elsewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
	} {
		s := serve(t, answer)
		err := newWorkload(map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(s.URL, "http://")}, nil).fails(t,
			"google")
		require.Len(t, s.asked, 1, name)
		require.Contains(t, err.Error(), "google: ", name)
	}
	down := serve(t, says(""))
	down.Close()
	require.ErrorContains(t, newWorkload(map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(down.URL, "http://")},
		nil).fails(t, "google"), "connection refused")
}

// TestAServiceThatDoesNotAnswerIsGivenUp when the connection's context ends.
func TestAServiceThatDoesNotAnswerIsGivenUp(t *testing.T) {
	began := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	})
	w := newWorkload(map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(s.URL, "http://")}, nil)
	source, err := w.source("google", "db:3306", "u")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-began
		cancel()
	}()
	_, err = source(ctx)
	require.Error(t, err)
	require.True(t, errors.Is(err, ctx.Err()), err)
}
