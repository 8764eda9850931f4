package cloudtoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// token is a URL that would connect user to the database, signed by Signature Version 4 with
// the signature in the query ("Create a signed AWS API request", IAM), without its scheme.
func (c Credentials) token(address, region, user string, now time.Time) string {
	const algorithm, service, end = "AWS4-HMAC-SHA256", "rds-db", "aws4_request"
	at, day := now.UTC().Format("20060102T150405Z"), now.UTC().Format("20060102")
	scope := strings.Join([]string{day, region, service, end}, "/")
	values := url.Values{
		"Action": {"connect"}, "DBUser": {user}, "X-Amz-Algorithm": {algorithm}, "X-Amz-Credential": {c.ID + "/" + scope},
		"X-Amz-Date": {at}, "X-Amz-Expires": {strconv.Itoa(int(rdsTokenLife.Seconds()))}, "X-Amz-SignedHeaders": {"host"},
	}
	if c.Session != "" {
		values.Set("X-Amz-Security-Token", c.Session)
	}
	query := strings.ReplaceAll(values.Encode(), "+", "%20")
	request := strings.Join([]string{"GET", "/", query, "host:" + address, "", "host", hexSum("")}, "\n")
	toSign := strings.Join([]string{algorithm, at, scope, hexSum(request)}, "\n")
	key := []byte("AWS4" + c.Secret)
	for _, part := range []string{day, region, service, end} {
		key = sign(key, part)
	}
	return address + "/?" + query + "&X-Amz-Signature=" + hex.EncodeToString(sign(key, toSign))
}

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
