package tpm

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodeattest/nodeattest/csr"
)

// nodeKeys are the keys of one message, and what the node presents of them.
type nodeKeys struct {
	road       Road
	ak         *loadedKey
	ek         *loadedKey // nil on road AK
	machineKey [HashSize]byte
	// chain is the certificates of the AK, on road EK of the EK, leaf first and root
	// left out; ekPublic the EK's SubjectPublicKeyInfo where it has no certificate.
	chain    [][]byte
	ekPublic []byte
}

// loadKeys loads the AK, and on road EK the EK, and reads the certificates.
func (a *Attester) loadKeys(ctx context.Context, h *handles) (*nodeKeys, error) {
	ak, err := loadAK(ctx, h, &a.source, a.password.Reveal())
	if err != nil {
		return nil, err
	}
	keys := &nodeKeys{road: RoadAK, ak: ak}
	carrier := ak
	if a.ek != nil {
		if keys.ek, err = loadEK(ctx, h, a.ek, a.password.Reveal()); err != nil {
			return nil, err
		}
		keys.road, carrier = RoadEK, keys.ek
	}
	public, err := carrier.public.Key()
	if err != nil {
		return nil, err
	}
	if keys.machineKey, err = csr.SPKIHash(public); err != nil {
		return nil, err
	}
	if keys.chain, err = a.chain(ctx, h); err != nil {
		return nil, err
	}
	if keys.road == RoadAK {
		return keys, nil
	}
	if len(keys.chain) == 0 {
		keys.ekPublic, err = csr.CanonicalSPKI(public)
		return keys, err
	}
	ek, err := parseEK(keys.chain[0])
	if err != nil {
		return nil, fmt.Errorf("EK certificate: %w", err)
	}
	if ek.Digest != keys.machineKey {
		return nil, errors.New("the EK certificate is for another key than the EK in this TPM")
	}
	return keys, nil
}

// checkBinding holds a challenge against the node's own values.
func (k *nodeKeys) checkBinding(b *Binding, request *csr.PKCS10, s *Subject) error {
	want := &Binding{
		Road:              k.road,
		ClusterID:         s.ClusterID,
		SignerName:        s.SignerName,
		ExpirationSeconds: s.ExpirationSeconds,
		MachineKey:        k.machineKey,
		RequestHash:       request.InfoHash,
	}
	if k.road == RoadEK {
		want.AKName = k.ak.name
	}
	return compareOwnValues(b, want)
}

// chain returns the certificates of the AK, or of the EK, leaf first and root left
// out; none for an EK that has none.
func (a *Attester) chain(ctx context.Context, h *handles) ([][]byte, error) {
	chain, index := a.certificates, a.source.CertificateIndex
	if a.ek != nil {
		index = a.ek.CertificateIndex
	}
	if len(chain) == 0 {
		if index == 0 {
			return nil, nil
		}
		leaf, err := readNVCertificate(ctx, h, index)
		if err != nil {
			return nil, err
		}
		above := a.intermediates
		if a.chainFromNV {
			if above, err = ekChainOf(ctx, h, leaf); err != nil {
				return nil, fmt.Errorf("EK chain: %w", err)
			}
		}
		chain = append([][]byte{leaf}, above...)
	}
	last := len(chain) - 1
	if last > 0 && isRoot(chain[last]) {
		return chain[:last], nil
	}
	return chain, nil
}
