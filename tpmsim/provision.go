package tpmsim

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
)

// provision turns a started emulator into the TPM that the options describe. On an error
// the emulator is closed.
func provision(dev *device, tcti string, opts Options) (_ *TPM, err error) {
	t := &TPM{dev: dev, tcti: tcti, ca: opts.CA, eks: map[Algorithm]key{}, aks: map[Algorithm]key{}, akCert: opts.akCertificate()}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.ca == nil {
		if t.ca, err = NewCA(CAOptions{Seed: opts.Seed, Now: opts.Now}); err != nil {
			return nil, err
		}
	}
	if opts.EKs == nil {
		opts.EKs = []Algorithm{RSA2048, P256}
	}
	if opts.AKs == nil {
		opts.AKs = []AK{{}}
	}
	for _, a := range opts.EKs {
		if err := t.provisionEK(a, opts.PersistEKs); err != nil {
			return nil, err
		}
	}
	for _, a := range opts.AKs {
		if err := t.provisionAK(a); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *TPM) provisionEK(a Algorithm, persist bool) error {
	alg, err := a.look()
	if err != nil {
		return err
	}
	handle := alg.ekHandle
	if !persist {
		handle = 0
	}
	k, err := t.primary(a, alg.newEK(), handle)
	if err != nil {
		return err
	}
	if k.certificate, err = t.ca.IssueEK(k.public, CertificateOptions{}); err != nil {
		return err
	}
	t.eks[a] = k
	return t.defineNV(alg.ekCertificate, k.certificate.Raw)
}

func (t *TPM) provisionAK(a AK) error {
	a.Algorithm = cmp.Or(a.Algorithm, RSA2048)
	alg, err := a.Algorithm.look()
	if err != nil {
		return err
	}
	a.TemplateIndex, a.CertificateIndex = cmp.Or(a.TemplateIndex, alg.akTemplate), cmp.Or(a.CertificateIndex, alg.akCertificate)
	stored, filled := alg.newAK(nil), alg.newAK(nil)
	if a.NonceIndex != 0 {
		nonce := sha256.Sum256(binary.BigEndian.AppendUint32([]byte("tpmsim nonce "), uint32(a.NonceIndex)))
		unique := make([]byte, alg.width)
		stored = alg.newAK(unique)
		filled = alg.newAK(append(nonce[:], unique[len(nonce):]...))
		if err := t.defineNV(a.NonceIndex, nonce[:]); err != nil {
			return err
		}
	}
	if a.Template != nil {
		filled = a.Template
	} else if err := t.defineNV(a.TemplateIndex, tpm2.Marshal(*stored)); err != nil {
		return err
	}
	k, err := t.primary(a.Algorithm, filled, a.Handle)
	if err != nil {
		return err
	}
	if k.certificate, err = t.CertifyAK(k.public); err != nil {
		return err
	}
	t.aks[a.Algorithm] = k
	chain := k.certificate.Raw
	if a.Chain {
		chain = slices.Concat(t.ca.ak.certificate.Raw, chain)
	}
	return t.defineNV(a.CertificateIndex, chain)
}

// primary makes a primary key of the endorsement hierarchy, persists it unless
// persistent is 0, and flushes it: the template recreates the same key.
func (t *TPM) primary(a Algorithm, template *tpm2.TPMTPublic, persistent tpm2.TPMHandle) (_ key, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("tpmsim: primary key %v: %w", a, err)
		}
	}()
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(*template)}.Execute(t)
	if err != nil {
		return key{}, err
	}
	defer func() {
		_, flushed := tpm2.FlushContext{FlushHandle: rsp.ObjectHandle}.Execute(t)
		err = errors.Join(err, flushed)
	}()
	if persistent != 0 {
		_, err := tpm2.EvictControl{
			Auth:             tpm2.TPMRHOwner,
			ObjectHandle:     &tpm2.NamedHandle{Handle: rsp.ObjectHandle, Name: rsp.Name},
			PersistentHandle: persistent,
		}.Execute(t)
		if err != nil {
			return key{}, err
		}
	}
	area, err := rsp.OutPublic.Contents()
	if err != nil {
		return key{}, err
	}
	public, err := tpm2.Pub(*area)
	return key{public: public, template: tpm2.Marshal(*template)}, err
}
