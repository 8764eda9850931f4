package cloudtoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Providers are the names that New takes.
var Providers = []string{"aws", "google", "azure"}

// Token is a password that expires.
type Token struct {
	Password string
	Until    time.Time // not to be used for new connections after this
}

// Source returns a token for a new connection. Its errors quote no token and no key.
type Source func(context.Context) (Token, error)

const (
	// requestTimeout bounds each request. Metadata services answer within milliseconds.
	requestTimeout = 5 * time.Second
	// mostOfAnAnswer is in bytes; tokens have a few thousand.
	mostOfAnAnswer = 64 << 10
	mostOfAReason  = 300
	// reserve is how long before they expire credentials and tokens are replaced: more than
	// providers' clocks and ours differ, less than metadata services renew them in advance.
	reserve = 2 * time.Minute
)

// New returns the tokens of a provider for the database at address, a host and port, and for its
// user. It returns an error if the environment lacks a name that only it can give.
func New(provider, address, user string) (Source, error) {
	return newAsker().source(provider, address, user)
}

func (a *asker) source(provider, address, user string) (Source, error) {
	var token Source
	var err error
	switch provider {
	case "aws":
		token, err = a.aws(address, user)
	case "google":
		token = a.google
	case "azure":
		token = a.azure
	default:
		return nil, fmt.Errorf("must be one of %s", strings.Join(Providers, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", provider, err)
	}
	return func(ctx context.Context) (Token, error) {
		t, err := token(ctx)
		if err != nil {
			return Token{}, fmt.Errorf("%s: %w", provider, err)
		}
		return t, nil
	}, nil
}

// asker asks the services of providers. Tests replace its fields.
type asker struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
	now      func() time.Time
	// local reaches metadata services, without a proxy; public reaches the rest.
	local, public *http.Client
}

func newAsker() *asker {
	client := func(proxy func(*http.Request) (*url.URL, error)) *http.Client {
		return &http.Client{
			Timeout:   requestTimeout,
			Transport: &http.Transport{Proxy: proxy, DisableKeepAlives: true},
			// Elsewhere, a secret must not follow.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &asker{getenv: os.Getenv, readFile: os.ReadFile, now: time.Now, local: client(nil),
		public: client(http.ProxyFromEnvironment)}
}

// env returns the first of the variables that is set.
func (a *asker) env(names ...string) string {
	for _, name := range names {
		if value := a.getenv(name); value != "" {
			return value
		}
	}
	return ""
}

// fileNamedBy returns what the file holds that a variable names.
func (a *asker) fileNamedBy(variable string) (string, error) {
	text, err := a.readFile(a.getenv(variable))
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// fetch sends a request and returns the answer's body. The form, if any, is posted. Errors hold the
// beginning of the answer, which explains refusals, without the secrets that were sent.
func (a *asker) fetch(ctx context.Context, client *http.Client, method, address string, header map[string]string,
	form url.Values) ([]byte, error) {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, errors.New("the address of the service cannot be parsed")
	}
	var sent []string
	for name, value := range header {
		req.Header.Set(name, value)
		sent = append(sent, value)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, values := range form {
			sent = append(sent, values...)
		}
	}
	where := req.URL.Host + req.URL.Path
	resp, err := client.Do(req)
	if err != nil {
		// The error quotes the whole URL, which may hold more than the path.
		if cause := new(url.Error); errors.As(err, &cause) {
			err = cause.Err
		}
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostOfAnAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", where, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s%s", where, resp.Status, reason(string(answer), sent))
	case len(answer) > mostOfAnAnswer:
		return nil, fmt.Errorf("%s: the answer has more than %d bytes", where, mostOfAnAnswer)
	}
	return answer, nil
}

// reason is the beginning of an answer, on one line, without what was sent.
func reason(answer string, sent []string) string {
	for _, secret := range sent {
		if len(secret) > 8 { // shorter ones are names and numbers
			answer = strings.ReplaceAll(answer, secret, "xxxxx")
		}
	}
	if answer = strings.Join(strings.Fields(answer), " "); answer == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(answer[:min(len(answer), mostOfAReason)], "")
}

// bearer decodes the answer of an OAuth token endpoint, as fetch returns it. Azure's metadata
// service gives numbers as text, other services as numbers.
func (a *asker) bearer(answer []byte, err error) (Token, error) {
	if err != nil {
		return Token{}, err
	}
	var got struct {
		Token   string      `json:"access_token"`
		Seconds json.Number `json:"expires_in"`
		At      json.Number `json:"expires_on"` // App Service gives this only
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Token == "" {
		return Token{}, errors.New("the answer holds no token")
	}
	until := a.now()
	if seconds, err := got.Seconds.Int64(); err == nil {
		until = until.Add(time.Duration(seconds) * time.Second)
	} else if at, err := got.At.Int64(); err == nil {
		until = time.Unix(at, 0)
	}
	return Token{Password: got.Token, Until: until.Add(-reserve)}, nil
}
