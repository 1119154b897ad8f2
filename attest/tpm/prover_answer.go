package tpm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkCredential: the TPM does not open a credential: it was made for another EK or
// another AK, or was altered in transit. The error that wraps it has the TPM's response code.
const checkCredential refusal.Check = "tpm-credential"

// activate is TPM2_ActivateCredential (TPM 2.0 Library, Part 3, 12.5): it returns the secret
// that the credential holds for exactly this ek and ak. The secret leaves the TPM encrypted,
// in a session that is salted to the EK. It is never in an error.
func activate(ctx context.Context, h *tpmop.Handles, ak, ek *tpmop.LoadedKey, endorsementPassword []byte, c *attest.Credential) ([]byte, error) {
	return tpmop.Anew(func() ([]byte, error) {
		useEK, err := h.AuthorizeEK(ctx, ek, endorsementPassword)
		if err != nil {
			return nil, err
		}
		// The AK's empty password authorizes this, even in the ADMIN role, because
		// adminWithPolicy is clear.
		session, err := h.EKSession(ctx, ek, nil, tpm2.AESEncryption(tpm2.TPMKeyBits(ek.Public.Symmetric.KeyBits), tpm2.EncryptOut))
		if err != nil {
			return nil, err
		}
		rsp, err := tpmop.Run(ctx, h.TPM, tpm2.ActivateCredential{
			ActivateHandle: tpmop.WithSession(ak.Handle, ak.Name, session),
			KeyHandle:      useEK,
			CredentialBlob: tpm2.TPM2BIDObject{Buffer: c.IDObject},
			Secret:         tpm2.TPM2BEncryptedSecret{Buffer: c.EncryptedSecret},
		}, "TPM2_ActivateCredential of 0x%08x with the EK 0x%08x", uint32(ak.Handle), uint32(ek.Handle))
		if err != nil {
			if isBadCredential(err) {
				err = fmt.Errorf("%w: %w", checkCredential, err)
			}
			return nil, err
		}
		return rsp.CertInfo.Buffer, nil
	})
}

// isBadCredential reports whether err has a response code for a bad credential, by Part 3,
// 12.5: TPM_RC_INTEGRITY if the HMAC does not verify, TPM_RC_ECC_POINT, TPM_RC_SIZE,
// TPM_RC_VALUE and TPM_RC_INSUFFICIENT if one of its parts is malformed. libtpms returns
// TPM_RC_FAILURE if an RSA seed does not decrypt.
func isBadCredential(err error) bool {
	codes := []tpm2.TPMRC{tpm2.TPMRCIntegrity, tpm2.TPMRCECCPoint, tpm2.TPMRCSize, tpm2.TPMRCValue, tpm2.TPMRCInsufficient, tpm2.TPMRCFailure}
	return slices.ContainsFunc(codes, func(code tpm2.TPMRC) bool { return errors.Is(err, code) })
}

// certify has ak certify key over qualifyingData: always a labelled HMAC of package attest,
// never bytes that a caller chose, or the AK would sign for other protocols. The TPM's answer is
// verified as the control plane does it, so that a faulty TPM, or another key than was asked for,
// is noticed here and not by a refusal.
func certify(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey, key tpmkey.Certifiable, qualifyingData []byte) (e *statement.CertifyEvidence, err error) {
	loaded, err := key.Load(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("key to certify: %w", err)
	}
	defer func() { err = errors.Join(err, h.Flush(loaded.Handle)) }()
	rsp, err := tpmop.Anew(func() (*tpm2.CertifyResponse, error) {
		// Without adminWithPolicy, a key's password is enough for the ADMIN role, which
		// TPM2_Certify requires, whatever policy governs its use (Part 1, 19.2).
		object, err := h.AuthorizeKey(ctx, loaded)
		if err != nil {
			return nil, err
		}
		signer, err := h.AuthorizeKey(ctx, ak)
		if err != nil {
			return nil, err
		}
		return tpmop.Run(ctx, h.TPM, tpm2.Certify{
			ObjectHandle:   object,
			SignHandle:     signer,
			QualifyingData: tpm2.TPM2BData{Buffer: qualifyingData},
			InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}, // the AK's own
		}, "TPM2_Certify of 0x%08x with 0x%08x", uint32(loaded.Handle), uint32(ak.Handle))
	})
	if err != nil {
		return nil, tpmop.ExplainKeyPassword(err)
	}
	e = &statement.CertifyEvidence{Attest: rsp.CertifyInfo.Bytes(), Signature: tpm2.Marshal(rsp.Signature), Public: loaded.Public.Raw}
	_, err = statement.VerifyCertify(e, statement.CertifyOptions{AK: statement.AKFromCredential(ak.Public.Raw), QualifyingData: qualifyingData,
		Key: key.Public(), InsecureAllowSHA1Signature: true}) // the verifier's profile decides about SHA-1
	if err != nil {
		return nil, fmt.Errorf("the TPM's answer to TPM2_Certify: %w", err)
	}
	return e, nil
}

const (
	// quoteAttempts is how often a quote is tried, as a PCR may be extended between the
	// reading of its value and the quote.
	quoteAttempts = 4
	// pcrsPerRead is the largest number of values that TPM2_PCR_Read returns.
	pcrsPerRead = 8
)

// quote has ak quote the selected PCRs over qualifyingData, as certify does. The TPM's answer is
// verified too: a TPM silently leaves PCRs that it does not have out of its quotes.
func quote(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey, selection []statement.PCRSelection, qualifyingData []byte) (*statement.QuoteEvidence, error) {
	_, err := statement.SelectedPCRs(selection, true)
	if err != nil {
		return nil, fmt.Errorf("PCRs to quote: %w", err)
	}
	asked := statement.QuoteOptions{AK: statement.AKFromCredential(ak.Public.Raw), QualifyingData: qualifyingData, Selection: selection,
		InsecureAllowSHA1Signature: true, InsecureAllowSHA1Bank: true} // about which the verifier decides
	for range quoteAttempts {
		var e *statement.QuoteEvidence
		if e, err = quoteOnce(ctx, h, ak, selection, qualifyingData); err != nil {
			return nil, err
		}
		if _, err = statement.VerifyQuote(e, asked); err == nil {
			return e, nil
		}
		if !errors.Is(err, refusal.Check("pcr-digest")) {
			return nil, fmt.Errorf("the TPM's answer to TPM2_Quote: %w", err)
		}
	}
	return nil, refusal.Retry(fmt.Errorf("PCRs were extended while they were quoted, after %d attempts: %w", quoteAttempts, err))
}

func quoteOnce(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey, selection []statement.PCRSelection, qualifyingData []byte) (*statement.QuoteEvidence, error) {
	var pcrs []statement.PCR
	for _, s := range selection {
		read, err := tpmop.ReadPCRs(ctx, h, s, pcrsPerRead)
		if err != nil {
			return nil, err
		}
		pcrs = append(pcrs, read...)
	}
	if _, err := statement.SortedPCRs(pcrs); err != nil {
		return nil, fmt.Errorf("TPM2_PCR_Read: %w", err)
	}
	rsp, err := tpmop.Anew(func() (*tpm2.QuoteResponse, error) {
		signer, err := h.AuthorizeKey(ctx, ak)
		if err != nil {
			return nil, err
		}
		return tpmop.Run(ctx, h.TPM, tpm2.Quote{
			SignHandle:     signer,
			QualifyingData: tpm2.TPM2BData{Buffer: qualifyingData},
			InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}, // the AK's own
			PCRSelect:      tpmop.Selection(selection...),
		}, "TPM2_Quote with 0x%08x", uint32(ak.Handle))
	})
	if err != nil {
		return nil, tpmop.ExplainKeyPassword(err)
	}
	return &statement.QuoteEvidence{Attest: rsp.Quoted.Bytes(), Signature: tpm2.Marshal(rsp.Signature), PCRs: pcrs}, nil
}
