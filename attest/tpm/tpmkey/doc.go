// Package tpmkey makes and keeps keys in a TPM: signing keys for certificate requests and TLS
// that never leave it, and their certificates alongside them in NV.
//
//	device := tpmkey.Share(transport)
//	key, err := tpmkey.Create(ctx, device, tpmkey.ECDSAP256, tpmkey.Options{})
//	defer key.Close()
//
// A [Key] is a crypto.Signer: it signs the request, attest.Attester.Answer has the TPM certify it,
// and crypto/tls uses it afterwards. [Key.File] saves it to a [File] in a format that OpenSSL's
// tpm2 provider also reads; only this TPM can load it ([ParseFile], [Load]). A key may require a
// password and be bound to PCR values ([Options]).
//
// If the key stays in memory, [SoftwareKey] prepares it for certification: the TPM is given
// the key, certifies it and forgets it. The result of the join then says that the key is not
// resident.
//
// [Share] lets several users in one process use one TPM, one operation at a time. Give the same
// result to attest/tpm's NewProver. Commands wait for a busy TPM; an error that may pass matches
// refusal.ErrRetry and says what to do.
//
// [WriteNVCertificate] and [ReadNVCertificate] keep a certificate in an NV index. Passwords go to
// the TPM encrypted, in sessions that are salted with a key of the TPM, and no error holds one.
package tpmkey
