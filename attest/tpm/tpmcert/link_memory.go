package tpmcert

import (
	"bytes"
	"crypto/sha256"
	"sync"
)

// The most that a linkMemory holds. Real issuers have a few dozen intermediates. A machine
// presents its certificate twice within a challenge's window, in hello and answer.
const maxKnownCAs, maxKnownLeaves = 256, 4096

// linkMemory remembers the certificates whose signatures have been verified. That a key made
// a signature is true at any time and under any policy; all other checks are repeated each
// time. Only signatures under roots, and under what is remembered, ever get here. Anyone who
// has one such certificate can derive others from it that verify, for example with bytes
// after the signature, and so evict entries at the cost of one signature each; what has been
// evicted is verified again.
type linkMemory struct {
	mu     sync.RWMutex
	known  map[string]knownCA // by their DER
	leaves map[leafLink]bool
}

// leafLink is what is remembered of a machine's certificate: the SHA-256 of its issuer's
// SubjectPublicKeyInfo followed by the certificate itself. Both are DER, so no two pairs give
// the same bytes.
type leafLink [sha256.Size]byte

func leafLinkOf(leaf, issuer *certificate) (link leafLink) {
	digest := sha256.New()
	digest.Write(issuer.RawSubjectPublicKeyInfo)
	digest.Write(leaf.Raw)
	digest.Sum(link[:0])
	return link
}

type knownCA struct {
	cert     *certificate
	signedBy []byte // the issuer's SubjectPublicKeyInfo
}

func newLinkMemory() *linkMemory {
	return &linkMemory{known: map[string]knownCA{}, leaves: map[leafLink]bool{}}
}

// find returns what is known about the certificate with that DER, which then need not be
// parsed again, or the zero value if nothing is.
func (m *linkMemory) find(der []byte) knownCA {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.known[string(der)]
}

// has reports whether it is remembered that issuer signed the CA certificate.
func (m *linkMemory) has(cert, issuer *certificate) bool {
	k := m.find(cert.Raw)
	return k.cert != nil && bytes.Equal(k.signedBy, issuer.RawSubjectPublicKeyInfo)
}

func (m *linkMemory) hasLeaf(link leafLink) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.leaves[link]
}

// add remembers that issuer signed the CA certificate.
func (m *linkMemory) add(cert, issuer *certificate) {
	keep(m, m.known, string(cert.Raw), knownCA{cert: cert, signedBy: issuer.RawSubjectPublicKeyInfo}, maxKnownCAs)
}

func (m *linkMemory) addLeaf(link leafLink) { keep(m, m.leaves, link, true, maxKnownLeaves) }

// keep adds to a map of the memory, evicting another entry if the map is full.
func keep[K comparable, V any](m *linkMemory, in map[K]V, key K, value V, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, held := in[key]; !held && len(in) >= most {
		for other := range in { // the order of a map is random
			delete(in, other)
			break
		}
	}
	in[key] = value
}
