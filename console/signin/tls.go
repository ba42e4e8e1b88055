package signin

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// reloadEvery is how often the files of a certificate are looked at.
const reloadEvery = time.Minute

// TLS is the configuration of a listener whose certificate and key are in PEM files. Files that have changed are read again, within a
// minute: a certificate that is renewed needs no restart. One that cannot be read then is passed over, and the one before stays.
func TLS(certFile, keyFile string, clock func() time.Time) (*tls.Config, error) {
	pair := &keyPair{cert: certFile, key: keyFile, clock: clock}
	if err := pair.load(); err != nil {
		return nil, fmt.Errorf("certificate of the console: %w", err)
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.current(), nil },
	}, nil
}

type keyPair struct {
	cert, key string
	clock     func() time.Time

	mu      sync.Mutex
	looked  time.Time
	changed [2]time.Time
	now     *tls.Certificate
}

func (p *keyPair) load() error {
	var changed [2]time.Time
	for i, name := range []string{p.cert, p.key} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		changed[i] = info.ModTime()
	}
	p.looked = p.clock()
	if p.now != nil && changed == p.changed {
		return nil
	}
	read, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return err
	}
	p.changed, p.now = changed, &read
	return nil
}

func (p *keyPair) current() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clock().Sub(p.looked) >= reloadEvery {
		p.looked = p.clock()
		_ = p.load() // half of a renewal is read at the next look; the certificate before is still good
	}
	return p.now
}
