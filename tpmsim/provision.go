package tpmsim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// provision makes a started emulator the TPM that the options ask for. On an error
// the emulator is closed.
func provision(dev device, tcti string, o *Options) (_ *TPM, err error) {
	t := &TPM{dev: dev, tcti: tcti, ca: o.CA, akCert: *o.akCertificate()}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.ca == nil {
		if t.ca, err = NewCA(&CAOptions{Seed: o.Seed, Now: o.Now}); err != nil {
			return nil, err
		}
	}
	if t.nvSize, err = nvBufferMax(t); err != nil {
		return nil, err
	}
	for _, a := range o.EKs {
		if err := t.provisionEK(a, o.PersistEKs); err != nil {
			return nil, err
		}
	}
	used := map[tpm2.TPMHandle]bool{}
	for _, place := range ekPlaces {
		used[place.index] = true
	}
	for i := range o.AKs {
		if err := o.AKs[i].claim(used); err != nil {
			return nil, err
		}
		if err := t.provisionAK(&o.AKs[i]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *TPM) provisionEK(a Algorithm, persist bool) error {
	template, err := ekTemplate(a)
	if err != nil {
		return err
	}
	place := ekPlaces[a]
	if !persist {
		place.handle = 0
	}
	k, err := t.primary(a, template, place.handle)
	if err != nil {
		return err
	}
	if k.certificate, err = t.ca.IssueEK(k.public, nil); err != nil {
		return err
	}
	if err := t.WriteNV(place.index, k.certificate.Raw); err != nil {
		return err
	}
	t.eks = append(t.eks, k)
	return nil
}

func (t *TPM) provisionAK(a *AK) error {
	stored, filled := a.Template, a.Template
	if a.NonceIndex != 0 {
		var err error
		if stored, err = withUnique(a.Template, nil); err != nil {
			return err
		}
		if filled, err = withUnique(a.Template, a.Nonce); err != nil {
			return err
		}
		if err := t.WriteNV(a.NonceIndex, a.Nonce); err != nil {
			return err
		}
	}
	if err := t.WriteNV(a.TemplateIndex, tpm2.Marshal(*stored)); err != nil {
		return err
	}
	k, err := t.primary(a.Algorithm, filled, 0)
	if err != nil {
		return err
	}
	if !a.NoCertificate {
		if k.certificate, err = t.ca.IssueAK(k.public, a.Certificate); err != nil {
			return err
		}
		if err := t.WriteNV(a.CertificateIndex, a.stored(k.certificate.Raw)); err != nil {
			return err
		}
	}
	t.aks = append(t.aks, k)
	return nil
}

// claim takes the AK's indexes, each of which can be used once.
func (a *AK) claim(used map[tpm2.TPMHandle]bool) error {
	indexes := []tpm2.TPMHandle{a.TemplateIndex}
	if !a.NoCertificate {
		indexes = append(indexes, a.CertificateIndex)
	}
	if a.NonceIndex != 0 {
		indexes = append(indexes, a.NonceIndex)
	}
	for _, i := range indexes {
		if used[i] {
			return fmt.Errorf("%w: NV index %#x twice; give the AK %v indexes of its own", ErrOptions, uint32(i), a.Algorithm)
		}
		used[i] = true
	}
	return nil
}

// stored is the certificate as the NV index holds it.
func (a *AK) stored(der []byte) []byte {
	var b []byte
	if a.Header {
		// TCG_PCCLIENT_STORED_CERT: tag, certType (0, full), certSize; then the
		// TCG_FULL_CERT tag, which certSize includes.
		b = append(b, 0x10, 0x01, 0x00)
		b = binary.BigEndian.AppendUint16(b, uint16(len(der)+2))
		b = append(b, 0x10, 0x02)
	}
	b = append(b, der...)
	return append(b, bytes.Repeat([]byte{0xff}, a.Padding)...)
}

// primary makes a primary key of the endorsement hierarchy, persists it unless
// persistent is 0, and flushes it: the template makes the same key again.
func (t *TPM) primary(a Algorithm, template *tpm2.TPMTPublic, persistent tpm2.TPMHandle) (_ key, err error) {
	rsp, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHEndorsement,
		InPublic:      tpm2.New2B(*template),
	}.Execute(t)
	if err != nil {
		return key{}, fmt.Errorf("tpmsim: create the primary key %v: %w", a, err)
	}
	defer func() {
		if _, ferr := (tpm2.FlushContext{FlushHandle: rsp.ObjectHandle}).Execute(t); ferr != nil {
			err = errors.Join(err, fmt.Errorf("tpmsim: flush the primary key %v: %w", a, ferr))
		}
	}()
	if persistent != 0 {
		_, err := tpm2.EvictControl{
			Auth:             tpm2.TPMRHOwner,
			ObjectHandle:     &tpm2.NamedHandle{Handle: rsp.ObjectHandle, Name: rsp.Name},
			PersistentHandle: persistent,
		}.Execute(t)
		if err != nil {
			return key{}, fmt.Errorf("tpmsim: persist the primary key %v: %w", a, err)
		}
	}
	public, err := rsp.OutPublic.Contents()
	if err != nil {
		return key{}, fmt.Errorf("tpmsim: primary key %v: %w", a, err)
	}
	pub, err := publicKey(public)
	if err != nil {
		return key{}, err
	}
	return key{algorithm: a, public: pub, template: tpm2.Marshal(*template)}, nil
}
