package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// checkKeyFile: a file of private keys is not one that this package reads.
	checkKeyFile refusal.Check = "signing-key-file"
	// checkPublicFile: a file of public keys is not one that this package reads.
	checkPublicFile refusal.Check = "public-key-file"
)

// maxOwn is how many keys a key file has: the one that is to sign, and the one before.
const maxOwn = 2

// blocks returns the PEM blocks of a text. A block that is cut, or that is not PEM, is an error: encoding/pem
// passes over it to the next.
func blocks(text []byte, most int, check refusal.Check) ([]*pem.Block, error) {
	var all []*pem.Block
	begun := bytes.Count(text, []byte("-----BEGIN"))
	for rest := text; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			if begun != len(all) || len(all) != 0 && len(bytes.TrimSpace(rest)) != 0 {
				return nil, check.Refuse("a block of PEM that is cut or malformed, or text after the last", "whole blocks")
			}
			return all, nil
		}
		if len(block.Headers) != 0 {
			return nil, check.Refuse("a block "+refusal.Quote(block.Type)+" with headers, as of an encrypted key", "an unencrypted key")
		}
		if all = append(all, block); len(all) > most {
			return nil, check.Refuse("more blocks", "at most "+strconv.Itoa(most))
		}
		rest = after
	}
}

// parsePrivate reads the one or two private keys of a key file.
func parsePrivate(text []byte) ([]crypto.Signer, error) {
	all, err := blocks(text, maxOwn*2, checkKeyFile) // each may have a block of parameters
	if err != nil {
		return nil, err
	}
	var keys []crypto.Signer
	for _, block := range all {
		var key any
		switch block.Type {
		case "EC PARAMETERS": // openssl ecparam -genkey writes it before the key
			continue
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		default:
			return nil, checkKeyFile.Refuse("a block "+refusal.Quote(block.Type), "PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY, unencrypted")
		}
		if err != nil { // its text may hold parts of the key
			return nil, checkKeyFile.Refuse("a malformed block "+refusal.Quote(block.Type), "a private key")
		}
		switch key.(type) {
		case *rsa.PrivateKey, *ecdsa.PrivateKey:
		default:
			return nil, checkKeyFile.Refuse(fmt.Sprintf("a key of type %T, which kube-apiserver does not take", key), wantKey)
		}
		keys = append(keys, key.(crypto.Signer))
	}
	if len(keys) == 0 || len(keys) > maxOwn {
		return nil, checkKeyFile.Refuse(strconv.Itoa(len(keys))+" private keys", "the one that is to sign, and after it at most the one before")
	}
	return keys, nil
}

// wantKey describes the keys that kube-apiserver takes.
const wantKey = "RSA of 2048 bits or more, or ECDSA on P-256, P-384 or P-521"

// algorithms are the ones that kube-apiserver takes from an external signer.
var algorithms = []jws.Algorithm{jws.RS256, jws.ES256, jws.ES384, jws.ES512}

// publicKey binds a public key to the algorithm that kube-apiserver takes it for.
func publicKey(public crypto.PublicKey, keyID string) (*jws.Key, error) {
	key, err := jws.NewKey(public, jws.KeyOptions{KeyID: keyID})
	if err != nil {
		return nil, err
	}
	return key, checkAlgorithm(key)
}

func checkAlgorithm(key *jws.Key) error {
	if !slices.Contains(algorithms, key.Algorithm()) {
		return jws.CheckAlgorithm.Refuse("a key for "+string(key.Algorithm()), wantKey)
	}
	return nil
}

// parsePublic reads public keys in PEM, at most most, by their content as kube-apiserver does
// (ParsePublicKeysPEM of k8s.io/client-go/util/keyutil): PKIX and certificates. Where kube-apiserver reads
// the public part of private keys, and passes over other blocks, this is an error.
func parsePublic(text []byte, most int) ([]*jws.Key, error) {
	all, err := blocks(text, most, checkPublicFile)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, checkPublicFile.Refuse("no key", "public keys in PEM")
	}
	var keys []*jws.Key
	for _, block := range all {
		if strings.Contains(block.Type, "PRIVATE") {
			return nil, checkPublicFile.Refuse("a block "+refusal.Quote(block.Type), "public keys")
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			certificate, other := x509.ParseCertificate(block.Bytes)
			if other != nil {
				return nil, &refusal.Error{Check: checkPublicFile, Got: "a block " + refusal.Quote(block.Type), Want: "PUBLIC KEY or CERTIFICATE", Err: err}
			}
			public = certificate.PublicKey
		}
		key, err := publicKey(public, "")
		if err != nil {
			return nil, &refusal.Error{Check: checkPublicFile, Err: err}
		}
		keys = append(keys, key)
	}
	return distinct(keys)
}

// distinct returns each key once. It refuses two keys with one ID.
func distinct(keys []*jws.Key) ([]*jws.Key, error) {
	var each []*jws.Key
	for _, key := range keys {
		switch other := find(each, key.KeyID()); {
		case other == nil:
			each = append(each, key)
		case !same(other, key):
			return nil, checkPublicFile.Refuse("two keys with the key ID "+refusal.Quote(key.KeyID()), "one for each ID")
		}
	}
	return each, nil
}

// find returns the key with that ID, or nil.
func find(keys []*jws.Key, keyID string) *jws.Key {
	if i := slices.IndexFunc(keys, func(k *jws.Key) bool { return k.KeyID() == keyID }); i >= 0 {
		return keys[i]
	}
	return nil
}

// same reports whether two keys verify the same tokens.
func same(a, b *jws.Key) bool {
	return a.KeyID() == b.KeyID() && a.Algorithm() == b.Algorithm() && samePublic(a.Public(), b.Public())
}

func samePublic(a, b crypto.PublicKey) bool {
	public, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(b)
}

// PublicKey returns the public key of the configured key, the one that is to sign, for the folders of
// peers: in PEM, or as a JWK set if the configuration has a KeyID, which PEM could not carry. It reads the
// key file alone.
func PublicKey(config Config) ([]byte, error) {
	s := newSource(config)
	own, err := s.read()
	if err != nil {
		return nil, err
	}
	key, err := publicKey(own[0].public, config.KeyID)
	if err != nil {
		return nil, err
	}
	if config.KeyID != "" {
		set, err := jws.MarshalJWKS([]*jws.Key{key})
		return append(set, '\n'), err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
