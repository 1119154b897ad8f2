package authenticator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// pendingFile holds the key that a machine without evidence asks with, until it has the
// certificate. Each name gets one certificate: a key that is lost while its request waits for the
// signer would leave the node without any, and a request with the same key is still the first.
const pendingFile = "client.pending.key"

const maxPendingSize = 4 << 10

// pendingKey returns the key of the requests before, or makes and stores one. The lock is that of
// the attempt.
func pendingKey(l *certstore.Lock, i *item) (*ecdsa.PrivateKey, error) {
	text, err := i.store.Read(pendingFile, maxPendingSize)
	if err == nil {
		if block, _ := pem.Decode(text); block != nil {
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if key, ok := key.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
					return key, nil
				}
			}
		}
		return nil, fmt.Errorf("%s holds no key: remove it, and have an operator release the name if it was given already", i.store.Path(pendingFile))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, l.In(i.store).Write(pendingFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// another says how a node without evidence gets another certificate.
func (c *Config) another() string {
	return "after kubectl nodeattest release " + c.NodeName + " and kubectl delete node " + c.NodeName + ", a fresh bootstrap token gets another"
}
