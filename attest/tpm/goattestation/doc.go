// Package goattestation joins machines whose keys were made by go-attestation
// (github.com/google/go-attestation v0.6.4), such as machines of step-ca, Teleport, kairos and
// SPIRE's TPM plugins. It is a module of its own: no other module of this repository requires
// go-attestation. In this text attest is go-attestation's package.
//
// # One TPM
//
// Both libraries use one device, opened once. [NewChannel] gives it to go-attestation:
//
//	device, err := tpm.OpenTPM("/dev/tpmrm0")
//	shared := tpmkey.Share(device)
//	channel, err := goattestation.NewChannel(shared, nil)
//	client, err := attest.OpenTPM(&attest.OpenConfig{CommandChannel: channel})
//	prover, err := tpm.NewProver(shared, source, options)
//
// A program that has a CommandChannel of its own begins with [Transport] instead of OpenTPM. An
// attest.TPM does not give its channel away, so one that OpenTPM(nil) opened cannot be shared. On
// Linux it has opened /dev/tpmrm0 where the kernel has it, for which a second tpm.OpenTPM is as
// good: the kernel keeps the loaded keys of the two apart. /dev/tpm0 can be opened once.
//
// The program that opened the device closes it, after both: closing the attest.TPM closes the Channel and
// leaves the device open. Operations of package tpm are whole: no command of go-attestation comes
// between theirs. An attest.TPM itself is for one goroutine at a time. An open attest.AK or
// attest.Key takes one of the TPM's few slots, three on many, so close it before a join.
//
// # Keys
//
// An AK is taken from its blob (attest.AK.Marshal) by [AKSource], and a key of attest.TPM.NewKey,
// to be certified, by [KeyFile]. The AK must be under its parent in this TPM, and is loaded for
// each operation. One that was made persistent needs nothing: tpm.AKSource{Handle: handle}.
//
// AK.Certify sends no qualifying data, so its statement proves no freshness: it is accepted under
// statement.CertifyOptions.InsecureEmptyQualifyingData alone, and by no join.
// TPM.NewKey sends KeyConfig.QualifyingData, once, when it makes the key. A join needs a
// statement about an existing key over the challenge of the moment, which package tpm has the TPM
// make with the same AK.
//
// # Conversions
//
// Each pair of functions leads there and back: [CertifyEvidence] and [CertificationParameters],
// [QuoteEvidence] and [Quote], [Credential] and [EncryptedCredential], [EKCertificate] and [EK]. They
// check the form and verify nothing; either library then verifies the same bytes. A value that the
// other side cannot hold or use is refused with the reason: a quote over several banks, a signature
// with RSAPSS, an EK other than RSA-2048 and P-256.
//
// Such a refusal is a [*refusal.Error] with the check "go-attestation-value", or with a check of
// package statement or tpmcert if its parser refused the value.
//
// # Systems
//
// It is built and tested for AKs on Linux, and builds for Windows and macOS without cgo. On
// Windows go-attestation's keys are kept by the Platform Crypto Provider, which exports no blob
// and has no command channel: they are not supported, and [AKSource] refuses their blobs. The
// conversions work anywhere, as on a server that reads what Windows machines sent.
package goattestation
