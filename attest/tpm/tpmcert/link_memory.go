package tpmcert

import (
	"crypto/sha256"
	"sync"
)

// The most that a linkMemory holds. Real issuers have a few dozen intermediates. A machine
// presents its certificate twice within a challenge's window, in hello and answer.
const maxKnownCAs, maxKnownLeaves = 256, 4096

// linkMemory remembers the certificates whose signatures have been verified. That a key made a
// signature is true at any time and under any policy; all other checks are repeated each time. Only
// signatures by roots and by remembered certificates get here. Anyone who has one such certificate
// can derive others from it that verify, for example with bytes after the signature, and so evict
// entries at the cost of one signature each; an evicted certificate is verified again.
type linkMemory struct {
	mu     sync.RWMutex
	known  map[string]knownCA // by their DER
	leaves map[linkID]bool
}

// linkID tells links apart: the SHA-256 of the issuer's SubjectPublicKeyInfo followed by the
// certificate that it signed. Both are DER, so no two pairs give the same bytes.
type linkID [sha256.Size]byte

func linkOf(cert, issuer *certificate) (id linkID) {
	digest := sha256.New()
	digest.Write(issuer.RawSubjectPublicKeyInfo)
	digest.Write(cert.Raw)
	digest.Sum(id[:0])
	return id
}

type knownCA struct {
	cert *certificate
	link linkID // to the CA that signed it
}

func newLinkMemory() *linkMemory {
	return &linkMemory{known: map[string]knownCA{}, leaves: map[linkID]bool{}}
}

// find returns the remembered certificate with that DER, which then need not be parsed again, or
// the zero value.
func (m *linkMemory) find(der []byte) knownCA {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.known[string(der)]
}

// has reports whether it is remembered that a link of this certificate verified.
func (m *linkMemory) has(id linkID, cert *certificate) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.leaves[id] || m.known[string(cert.Raw)].link == id
}

// add remembers a link of a machine's certificate or of a CA's.
func (m *linkMemory) add(id linkID, cert *certificate, leaf bool) {
	if leaf {
		keep(m, m.leaves, id, true, maxKnownLeaves)
	} else {
		keep(m, m.known, string(cert.Raw), knownCA{cert: cert, link: id}, maxKnownCAs)
	}
}

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
