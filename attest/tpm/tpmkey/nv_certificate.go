package tpmkey

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/secret"
)

// ErrNVIndexNotFound says that the TPM has no such NV index: a template, nonce or certificate
// that was requested is not provisioned. The error that wraps it names the index.
var ErrNVIndexNotFound = tpmop.ErrNVIndexNotFound

// ErrNVCertificateIncomplete says that writing a certificate into an NV index was not
// completed: the index holds nothing whole, and the next write replaces it.
var ErrNVCertificateIncomplete = tpmop.ErrNVCertificateIncomplete

// errNVIndexTaken says that an NV index exists and was not made by WriteNVCertificate: it is
// left as it is.
var errNVIndexTaken = errors.New("the NV index holds something else")

const (
	// maxNVCertificateSize is the largest certificate for an NV index, in bytes of DER. Most
	// TPMs take less, typically 2048, and have about 8 KiB in all.
	maxNVCertificateSize = 16 << 10

	// nvCertificateUnit divides an index's size, so that a renewed
	// certificate a few bytes longer or shorter fits the index of the previous one.
	nvCertificateUnit = 256
)

// NVCertificateOptions are what writing requires. The zero value is an empty password.
type NVCertificateOptions struct {
	// OwnerPassword is the owner hierarchy's; zero is the empty one.
	OwnerPassword secret.Value[[]byte]
}

// WriteNVCertificate keeps a certificate in an NV index that belongs to the owner: alongside a
// key in the TPM, it survives loss of the disk. index is one that the owner may assign,
// 0x01800000 to 0x01bfffff (TCG Registry of Reserved TPM 2.0 Handles and Localities 1.2,
// 2.2.2), or any other that is free. The index holds the DER and 0xff up to a multiple of 256
// bytes; every user of the TPM can read it, and the owner can write it.
//
// It is written completely or not at all. The size is checked against the TPM's limit before
// anything is changed. A certificate that fits into one command, and into an existing index,
// replaces the previous one in that command. Otherwise the old index is removed, and a new one is
// written from its end to its beginning, so that until the last command it does not begin with a
// certificate's header; one that cannot be finished is removed again. Finally it is read back and
// compared. A crash at the worst point leaves no certificate, never part of one, and running it
// again repairs that. A certificate that is already there is not written again.
//
// Errors wrap the TPM's response code, tpm.ErrHierarchyPassword, or say that the index holds
// something else.
func WriteNVCertificate(ctx context.Context, tpm transport.TPM, index tpm2.TPMHandle, der []byte, opts NVCertificateOptions) error {
	if err := checkNVCertificate(der); err != nil {
		return fmt.Errorf("tpmkey: certificate for NV index 0x%08x: %w", uint32(index), err)
	}
	err := tpmop.Share(tpm).Do(ctx, func(h *tpmop.Handles) error {
		return (&nvWriter{h: h, index: index, password: opts.OwnerPassword}).write(ctx, der)
	})
	if err != nil {
		return fmt.Errorf("tpmkey: certificate for NV index 0x%08x: %w", uint32(index), err)
	}
	return nil
}

// ReadNVCertificate reads the DER of a certificate from an NV index: one that
// WriteNVCertificate wrote, or a manufacturer's, with or without the 7 bytes of a
// TCG_PCCLIENT_STORED_CERT in front and padding at the end. Errors wrap ErrNVIndexNotFound,
// ErrNVCertificateIncomplete or the TPM's response code.
func ReadNVCertificate(ctx context.Context, tpm transport.TPM, index tpm2.TPMHandle) ([]byte, error) {
	var encoded []byte
	err := tpmop.Share(tpm).Do(ctx, func(h *tpmop.Handles) (err error) {
		encoded, err = tpmop.ReadNVCertificate(ctx, h, index)
		return err
	})
	if err == nil {
		err = checkNVCertificate(encoded)
	}
	if err != nil {
		return nil, fmt.Errorf("tpmkey: certificate in NV index 0x%08x: %w", uint32(index), err)
	}
	return encoded, nil
}

func checkNVCertificate(certificate []byte) error {
	if len(certificate) == 0 || len(certificate) > maxNVCertificateSize {
		return fmt.Errorf("%d bytes, want 1 to %d", len(certificate), maxNVCertificateSize)
	}
	if der.IsPEM(certificate) {
		return errors.New("the certificate is in PEM, want its DER")
	}
	_, err := x509.ParseCertificate(certificate)
	return err
}

// nvWriter writes one index of the owner's.
type nvWriter struct {
	h        *tpmop.Handles
	index    tpm2.TPMHandle
	password secret.Value[[]byte] // the owner's

	area *tpm2.TPMSNVPublic // nil if there is no index
	name tpm2.TPM2BName
}

func nvCertificateAttributes() tpm2.TPMANV {
	return tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, AuthRead: true, NoDA: true, NT: tpm2.TPMNTOrdinary}
}

// look reads the existing index, if there is one.
func (w *nvWriter) look(ctx context.Context) error {
	area, name, err := tpmop.ReadNVPublic(ctx, w.h, w.index)
	w.area, w.name = nil, name
	if errors.Is(err, tpmop.ErrNVIndexNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	want := nvCertificateAttributes()
	want.Written = area.Attributes.Written
	if area.Attributes != want || area.DataSize%nvCertificateUnit != 0 {
		return fmt.Errorf("%w: attributes %+v, %d bytes", errNVIndexTaken, area.Attributes, area.DataSize)
	}
	w.area = area
	return nil
}

func (w *nvWriter) write(ctx context.Context, der []byte) error {
	if err := w.look(ctx); err != nil {
		return err
	}
	chunk, err := tpmop.NVChunk(ctx, w.h)
	if err != nil {
		return err
	}
	data := append(bytes.Clone(der), bytes.Repeat([]byte{0xff}, (nvCertificateUnit-len(der)%nvCertificateUnit)%nvCertificateUnit)...)
	limit, err := tpmop.NVIndexMax(ctx, w.h)
	if err != nil {
		return err
	}
	if len(data) > limit {
		return fmt.Errorf("%d bytes with padding, and the TPM takes at most %d in an index", len(data), limit)
	}
	if w.area != nil && w.area.Attributes.Written { // NV memory wears out
		if old, err := tpmop.ReadNV(ctx, w.h, w.index); err == nil && bytes.Equal(old, data) {
			return nil
		}
	}
	if w.area == nil || int(w.area.DataSize) != len(data) || len(data) > chunk {
		if err := w.replace(ctx, len(data)); err != nil {
			return err
		}
	}
	if err := w.fill(ctx, data, chunk); err != nil {
		if len(data) <= chunk {
			return err // the one command was either done or not done
		}
		return errors.Join(err, w.undefine(context.WithoutCancel(ctx)))
	}
	got, err := tpmop.ReadNV(ctx, w.h, w.index)
	if err == nil && !bytes.Equal(got, data) {
		err = errors.Join(errors.New("the TPM returns other bytes than were written"), w.undefine(context.WithoutCancel(ctx)))
	}
	return err
}

// replace makes a new index in place of any old one.
func (w *nvWriter) replace(ctx context.Context, size int) error {
	if w.area != nil {
		if err := w.undefine(ctx); err != nil {
			return err
		}
	}
	err := asOwner(ctx, w, fmt.Sprintf("TPM2_NV_DefineSpace with %d bytes", size), func(owner tpm2.AuthHandle) tpmop.Command[tpm2.NVDefineSpaceResponse] {
		return tpm2.NVDefineSpace{AuthHandle: owner, PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{
			NVIndex: w.index, NameAlg: tpm2.TPMAlgSHA256, Attributes: nvCertificateAttributes(), DataSize: uint16(size),
		})}
	})
	if err != nil {
		return err
	}
	return w.look(ctx)
}

// asOwner runs a command that the owner authorizes.
func asOwner[R any](ctx context.Context, w *nvWriter, what string, command func(owner tpm2.AuthHandle) tpmop.Command[R]) error {
	owner, err := w.h.Authorize(ctx, tpm2.TPMRHOwner, nil, w.password.Reveal())
	if err != nil {
		return err
	}
	_, err = tpmop.Run(ctx, w.h.TPM, command(owner), "%s of index 0x%08x", what, uint32(w.index))
	return tpmop.ExplainPassword(err, tpm2.TPMRHOwner, w.password.Reveal())
}

func (w *nvWriter) undefine(ctx context.Context) error {
	_, name, err := tpmop.ReadNVPublic(ctx, w.h, w.index) // the first write changes the Name
	if err != nil {
		return err
	}
	return asOwner(ctx, w, "TPM2_NV_UndefineSpace", func(owner tpm2.AuthHandle) tpmop.Command[tpm2.NVUndefineSpaceResponse] {
		return tpm2.NVUndefineSpace{AuthHandle: owner, NVIndex: tpm2.NamedHandle{Handle: w.index, Name: name}}
	})
}

// fill writes from the end to the beginning.
func (w *nvWriter) fill(ctx context.Context, data []byte, chunk int) error {
	for end := len(data); end > 0; {
		start := (end - 1) / chunk * chunk
		err := asOwner(ctx, w, fmt.Sprintf("TPM2_NV_Write at offset %d", start), func(owner tpm2.AuthHandle) tpmop.Command[tpm2.NVWriteResponse] {
			return tpm2.NVWrite{
				AuthHandle: owner,
				NVIndex:    tpm2.NamedHandle{Handle: w.index, Name: w.name},
				Data:       tpm2.TPM2BMaxNVBuffer{Buffer: data[start:end]},
				Offset:     uint16(start),
			}
		})
		if err != nil {
			return err
		}
		if !w.area.Attributes.Written { // the Name covers that
			if err := w.look(ctx); err != nil {
				return err
			}
		}
		end = start
	}
	return nil
}
