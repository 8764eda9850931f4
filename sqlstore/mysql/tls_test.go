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

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// writeCertificate writes a self-signed certificate and its key.
func writeCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLSSettings(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t)
	config := func(params string) (*mysql.Config, error) {
		t.Helper()
		u, err := sqlstore.ParseURL("mysql://u:p@db.example/n" + params)
		if err != nil {
			t.Fatal(err)
		}
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
		if c, err := config(params); err != nil || !check(c) {
			t.Errorf("%q: %+v, %v", params, c, err)
		}
	}
	for _, params := range []string{"?tls-ca=/nonexistent", "?tls-ca=" + key, "?tls-cert=" + cert + "&tls-key=" + cert} {
		if _, err := config(params); err == nil {
			t.Errorf("%q is accepted", params)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			db, err := OpenDB(u, sqlstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}()
			var name, value string
			err = db.SQL().QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &value)
			return value, sqldb.RolledBack(ctx, &engine{}, err)
		}
		if c, err := cipher(""); err != nil || c != "" {
			t.Errorf("without tls: cipher %q, %v", c, err)
		}
		preferred, err := cipher("?tls=preferred")
		if err != nil {
			t.Errorf("tls=preferred: %v", err)
		}
		forced, err := cipher("?tls=skip-verify")
		if preferred != "" && (err != nil || forced == "") || preferred == "" && !errors.Is(err, sqlstore.ErrUnavailable) {
			t.Errorf("tls=skip-verify: cipher %q, %v; tls=preferred had %q", forced, err, preferred)
		}
		// No public authority vouches for a test's server.
		if c, err := cipher("?tls=true"); !errors.Is(err, sqlstore.ErrUnavailable) {
			t.Errorf("tls=true: cipher %q, %v; want ErrUnavailable", c, err)
		}
	})
}
