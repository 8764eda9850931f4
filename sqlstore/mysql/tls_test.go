package mysql

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// writeCertificate writes a self-signed certificate and its key.
func writeCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(k)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

func TestTLSSettings(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t)
	config := func(params string) (*mysql.Config, error) {
		t.Helper()
		u, err := sqlstore.ParseURL("mysql://u:p@db.example/n" + params)
		require.NoError(t, err)
		return configOf(u)
	}
	for params, check := range map[string]func(*mysql.Config) bool{
		"":           func(c *mysql.Config) bool { return c.TLS == nil },
		"?tls=false": func(c *mysql.Config) bool { return c.TLS == nil },
		"?tls=true": func(c *mysql.Config) bool {
			return !c.TLS.InsecureSkipVerify && c.TLS.ServerName == "db.example" && c.TLS.RootCAs == nil &&
				!c.AllowFallbackToPlaintext && c.TLS.MinVersion == tls.VersionTLS12
		},
		"?tls=skip-verify": func(c *mysql.Config) bool { return c.TLS.InsecureSkipVerify && !c.AllowFallbackToPlaintext },
		"?tls=preferred":   func(c *mysql.Config) bool { return c.TLS.InsecureSkipVerify && c.AllowFallbackToPlaintext },
		"?tls-ca=" + cert: func(c *mysql.Config) bool {
			return !c.TLS.InsecureSkipVerify && c.TLS.RootCAs != nil && !c.AllowFallbackToPlaintext
		},
		"?tls-cert=" + cert + "&tls-key=" + key: func(c *mysql.Config) bool {
			return !c.TLS.InsecureSkipVerify && len(c.TLS.Certificates) == 1
		},
	} {
		c, err := config(params)
		require.NoError(t, err, params)
		require.True(t, check(c), "%q: %+v", params, c)
	}
	for _, params := range []string{"?tls-ca=/nonexistent", "?tls-ca=" + key, "?tls-cert=" + cert + "&tls-key=" + cert} {
		_, err := config(params)
		require.Error(t, err, params)
	}
}

// TestTLSConnections: whether a server has TLS is its own affair; a connection is
// never less than what was asked for.
func TestTLSConnections(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		raw := p.Database(t)
		ctx := context.Background()
		cipher := func(params string) (string, error) {
			t.Helper()
			u, err := sqlstore.ParseURL(raw + params)
			require.NoError(t, err)
			db, err := OpenDB(u, sqlstore.Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			var name, value string
			err = db.SQL().QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &value)
			return value, sqldb.RolledBack(ctx, &engine{}, err)
		}
		plain, err := cipher("")
		require.NoError(t, err)
		require.Empty(t, plain, "without tls")
		preferred, err := cipher("?tls=preferred")
		require.NoError(t, err, "tls=preferred")
		forced, err := cipher("?tls=skip-verify")
		if preferred != "" && (err != nil || forced == "") || preferred == "" && !errors.Is(err, sqlstore.ErrUnavailable) {
			t.Errorf("tls=skip-verify: cipher %q, %v; tls=preferred had %q", forced, err, preferred)
		}
		// No public authority vouches for a test's server.
		_, err = cipher("?tls=true")
		require.ErrorIs(t, err, sqlstore.ErrUnavailable)
	})
}
