package signin_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirhq/weir/console/signin"
)

func writePair(t *testing.T, dir string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"weir.example"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "EC PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1_700_000_000+serial, 0)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestARenewedCertificateNeedsNoRestart(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, 1)
	now := time.Now()
	config, err := signin.TLS(cert, key, func() time.Time { return now })
	if err != nil || config.MinVersion < tls.VersionTLS12 {
		t.Fatal(config, err)
	}
	serial := func() int64 {
		t.Helper()
		shown, err := config.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		read, err := x509.ParseCertificate(shown.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return read.SerialNumber.Int64()
	}
	writePair(t, dir, 2)
	if got := serial(); got != 1 {
		t.Errorf("the files are read for each connection: serial %d", got)
	}
	now = now.Add(time.Minute)
	if got := serial(); got != 2 {
		t.Errorf("serial %d after a minute", got)
	}
	if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if got := serial(); got != 2 {
		t.Errorf("serial %d after half a renewal", got)
	}
	writePair(t, dir, 3)
	now = now.Add(time.Minute)
	if got := serial(); got != 3 {
		t.Errorf("serial %d after the other half", got)
	}
	if _, err := signin.TLS(cert, filepath.Join(dir, "none"), time.Now); err == nil {
		t.Error("a key that is not there is taken")
	}
}
