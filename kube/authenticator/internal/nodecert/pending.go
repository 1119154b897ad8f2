package nodecert

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

const maxPendingSize = 4 << 10

// PendingKey returns the key of earlier requests from a file of a store, or makes and stores one. A file
// without a P-256 key is an error, and is not replaced.
func PendingKey(l *certstore.Lock, store *certstore.Store, file string) (*ecdsa.PrivateKey, error) {
	text, err := store.Read(file, maxPendingSize)
	if err == nil {
		if block, _ := pem.Decode(text); block != nil {
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if key, ok := key.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
					return key, nil
				}
			}
		}
		return nil, fmt.Errorf("%s has no key: remove it, and have an administrator release the node's name if its certificate was already issued", store.Path(file))
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
	return key, l.In(store).Write(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
