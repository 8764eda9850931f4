package cloudtoken

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// rdsTokenLife is how long a token of RDS serves for new connections ("IAM database
	// authentication", RDS). It is not configurable there.
	rdsTokenLife = 15 * time.Minute
	// ecsAgent is where ECS serves what belongs to a task's role.
	ecsAgent = "http://169.254.170.2"
)

// regionInHost finds the region in an endpoint of RDS, of China's as well.
var regionInHost = regexp.MustCompile(`\.(?:([a-z0-9-]+)\.rds|rds\.([a-z0-9-]+))\.amazonaws\.com(?:\.cn)?$`)

// Credentials sign requests to AWS.
type Credentials struct {
	ID, Secret, Session string
	Until               time.Time // zero: they do not expire
}

// aws signs tokens for one database, which needs no request, with credentials of the workload.
func (a *asker) aws(address, user string) (Source, error) {
	host, _, _ := strings.Cut(address, ":")
	if strings.Contains(address, ",") {
		return nil, errors.New("a token is for one host, and the URL names several; name the cluster's endpoint")
	}
	region := a.env("AWS_REGION", "AWS_DEFAULT_REGION")
	if found := regionInHost.FindStringSubmatch(host); region == "" && found != nil {
		region = found[1] + found[2]
	}
	if region == "" {
		return nil, fmt.Errorf("%s does not name a region, and AWS_REGION is not set", host)
	}
	var mu sync.Mutex
	var kept Credentials
	return func(ctx context.Context) (Token, error) {
		mu.Lock()
		defer mu.Unlock()
		if now := a.now(); kept.ID == "" || !kept.Until.IsZero() && now.After(kept.Until) {
			fresh, err := a.awsCredentials(ctx, region)
			if err != nil {
				return Token{}, err
			}
			kept = fresh
		}
		now := a.now()
		until := now.Add(rdsTokenLife - reserve)
		if !kept.Until.IsZero() && kept.Until.Before(until) {
			until = kept.Until
		}
		return Token{Password: kept.token(address, region, user, now), Until: until}, nil
	}, nil
}

// AWS returns the credentials of the workload. Its errors quote none.
func AWS(ctx context.Context) (Credentials, error) {
	a := newAsker()
	return a.awsCredentials(ctx, cmp.Or(a.env("AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1"))
}

// awsCredentials looks where Amazon's SDKs do, in their order: variables, web identity (EKS), the
// container's endpoint (ECS, EKS pod identity), the machine's role. It reads no shared files.
func (a *asker) awsCredentials(ctx context.Context, region string) (Credentials, error) {
	switch {
	case a.env("AWS_ACCESS_KEY_ID") != "":
		return Credentials{ID: a.env("AWS_ACCESS_KEY_ID"), Secret: a.env("AWS_SECRET_ACCESS_KEY"),
			Session: a.env("AWS_SESSION_TOKEN")}, nil
	case a.env("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return a.webIdentity(ctx, region)
	case a.env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "", a.env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		return a.containerRole(ctx)
	case strings.EqualFold(a.env("AWS_EC2_METADATA_DISABLED"), "true"):
		return Credentials{}, errors.New("no variable names credentials, and AWS_EC2_METADATA_DISABLED is set")
	}
	return a.machineRole(ctx)
}

// webIdentity exchanges a mounted token for credentials (AssumeRoleWithWebIdentity of STS).
func (a *asker) webIdentity(ctx context.Context, region string) (Credentials, error) {
	identity, err := a.fileNamedBy("AWS_WEB_IDENTITY_TOKEN_FILE")
	if err != nil {
		return Credentials{}, err
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	at := cmp.Or(a.env("AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"), "https://sts."+region+"."+domain)
	answer, err := a.fetch(ctx, a.public, http.MethodPost, strings.TrimRight(at, "/")+"/", nil, url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "WebIdentityToken": {identity},
		"RoleArn": {a.env("AWS_ROLE_ARN")}, "RoleSessionName": {cmp.Or(a.env("AWS_ROLE_SESSION_NAME"), "sqlbrain")},
	})
	if err != nil {
		return Credentials{}, err
	}
	var got struct {
		Credentials struct {
			AccessKeyId, SecretAccessKey, SessionToken string
			Expiration                                 time.Time
		} `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if err := xml.Unmarshal(answer, &got); err != nil || got.Credentials.AccessKeyId == "" {
		return Credentials{}, errors.New("the answer of STS holds no credentials")
	}
	c := got.Credentials
	return Credentials{ID: c.AccessKeyId, Secret: c.SecretAccessKey, Session: c.SessionToken,
		Until: c.Expiration.Add(-reserve)}, nil
}

// containerRole asks the endpoint that ECS or the agent of EKS pod identity gives a container.
func (a *asker) containerRole(ctx context.Context) (Credentials, error) {
	at := ecsAgent + a.env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
	if a.env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") == "" {
		at = a.env("AWS_CONTAINER_CREDENTIALS_FULL_URI")
		if !safeForCredentials(at) {
			return Credentials{}, errors.New("AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or an address of this " +
				"machine, of ECS or of EKS")
		}
	}
	header := map[string]string{}
	if token := a.env("AWS_CONTAINER_AUTHORIZATION_TOKEN"); token != "" {
		header["Authorization"] = token
	}
	if a.env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") != "" {
		token, err := a.fileNamedBy("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
		if err != nil {
			return Credentials{}, err
		}
		header["Authorization"] = token
	}
	answer, err := a.fetch(ctx, a.local, http.MethodGet, at, header, nil)
	if err != nil {
		return Credentials{}, err
	}
	return roleCredentials(answer)
}

// safeForCredentials reports whether an authorization token may be sent to a URL, by the rule of
// Amazon's SDKs.
func safeForCredentials(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil &&
		(ip.IsLoopback() || ip == netip.MustParseAddr("169.254.170.2") || ip == netip.MustParseAddr("169.254.170.23") ||
			ip == netip.MustParseAddr("fd00:ec2::23")))
}

// machineRole asks the metadata service of EC2, version 2.
func (a *asker) machineRole(ctx context.Context) (Credentials, error) {
	at := strings.TrimRight(cmp.Or(a.env("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "http://169.254.169.254"), "/")
	session, err := a.fetch(ctx, a.local, http.MethodPut, at+"/latest/api/token",
		map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "60"}, nil)
	if err != nil {
		return Credentials{}, fmt.Errorf("no variable names credentials: %w", err)
	}
	header := map[string]string{"X-aws-ec2-metadata-token": string(session)}
	const roles = "/latest/meta-data/iam/security-credentials/"
	role, err := a.fetch(ctx, a.local, http.MethodGet, at+roles, header, nil)
	if err != nil {
		return Credentials{}, fmt.Errorf("the machine's role: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(role)), "\n")
	answer, err := a.fetch(ctx, a.local, http.MethodGet, at+roles+url.PathEscape(name), header, nil)
	if err != nil {
		return Credentials{}, err
	}
	return roleCredentials(answer)
}

// roleCredentials decodes what containers' endpoints and the metadata service answer.
func roleCredentials(answer []byte) (Credentials, error) {
	var got struct {
		AccessKeyId, SecretAccessKey, Token string
		Expiration                          time.Time
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.AccessKeyId == "" {
		return Credentials{}, errors.New("the answer holds no credentials")
	}
	return Credentials{ID: got.AccessKeyId, Secret: got.SecretAccessKey, Session: got.Token,
		Until: got.Expiration.Add(-reserve)}, nil
}
