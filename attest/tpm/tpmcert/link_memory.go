package tpmcert

import (
	"bytes"
	"crypto/sha256"
	"sync"
)

// maxKnownCAs bounds a linkMemory. Real issuers have some tens of intermediates.
const maxKnownCAs = 256

// linkID names one signature: the SHA-256 of the certificate, and of the
// SubjectPublicKeyInfo of the key that made it.
type linkID struct{ cert, key [sha256.Size]byte }

// linkMemory remembers the CA certificates whose signatures have been checked and held.
// That a key made a signature is true at any time and under any policy: all other
// checks are made anew each time. Only signatures under roots, and under what is
// remembered, ever come here, so that strangers cannot fill it.
type linkMemory struct {
	mu    sync.RWMutex
	known map[[sha256.Size]byte]*knownCA
}

type knownCA struct {
	cert     *certificate
	signedBy [sha256.Size]byte // over the issuer's SubjectPublicKeyInfo
}

func newLinkMemory() *linkMemory {
	return &linkMemory{known: map[[sha256.Size]byte]*knownCA{}}
}

// find returns the certificate with that DER, without parsing it again, or nil.
func (m *linkMemory) find(der []byte) *certificate {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k := m.known[sha256.Sum256(der)]; k != nil && bytes.Equal(k.cert.Raw, der) {
		return k.cert
	}
	return nil
}

func (m *linkMemory) has(id linkID) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	k := m.known[id.cert]
	return k != nil && k.signedBy == id.key
}

// add remembers that issuer signed the CA certificate.
func (m *linkMemory) add(cert, issuer *certificate) {
	if m.has(linkID{cert.sum, issuer.spki}) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxKnownCAs && m.known[cert.sum] == nil {
		for other := range m.known { // the order of a map is random
			delete(m.known, other)
			break
		}
	}
	m.known[cert.sum] = &knownCA{cert: cert, signedBy: issuer.spki}
}

func (m *linkMemory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.known)
}

// ForgetIntermediates empties the memory of verified intermediates: the next request pays
// for every signature of its chain. It is for those who measure that.
func (v *AKVerifier) ForgetIntermediates() { v.issuers[0].known.forget() }

// ForgetIntermediates empties the memory of verified intermediates: the next request pays
// for every signature of its chain. It is for those who measure that.
func (v *EKVerifier) ForgetIntermediates() { v.known.forget() }
