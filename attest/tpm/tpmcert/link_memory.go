package tpmcert

import (
	"bytes"
	"sync"
)

// maxKnownCAs bounds a linkMemory. Real issuers have some tens of intermediates.
const maxKnownCAs = 256

// linkMemory remembers the CA certificates whose signatures have been checked and held.
// That a key made a signature is true at any time and under any policy: all other
// checks are made anew each time. Only signatures under roots, and under what is
// remembered, ever come here, so that strangers cannot fill it.
type linkMemory struct {
	mu    sync.RWMutex
	known map[string]knownCA // by their DER
}

type knownCA struct {
	cert     *certificate
	signedBy []byte // the issuer's SubjectPublicKeyInfo
}

func newLinkMemory() *linkMemory {
	return &linkMemory{known: map[string]knownCA{}}
}

// find returns what is known of the certificate with that DER, which then need not be parsed
// again; the zero value for nothing.
func (m *linkMemory) find(der []byte) knownCA {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.known[string(der)]
}

// has says whether it is remembered that issuer signed the certificate.
func (m *linkMemory) has(cert, issuer *certificate) bool {
	k := m.find(cert.Raw)
	return k.cert != nil && bytes.Equal(k.signedBy, issuer.RawSubjectPublicKeyInfo)
}

// add remembers that issuer signed the CA certificate.
func (m *linkMemory) add(cert, issuer *certificate) {
	if m.has(cert, issuer) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxKnownCAs && m.known[string(cert.Raw)].cert == nil {
		for other := range m.known { // the order of a map is random
			delete(m.known, other)
			break
		}
	}
	m.known[string(cert.Raw)] = knownCA{cert: cert, signedBy: issuer.RawSubjectPublicKeyInfo}
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
