// Package tpmsim gives tests and example programs a TPM 2.0 that looks like that of a
// provisioned machine: endorsement keys with certificates in NV memory, an
// attestation key whose template and certificate are in NV memory, and the CA
// that issued both.
//
// A [TPM] is backed by one of two emulators. [New] and [Open] run the TCG's
// reference simulator inside the process (cgo, one per process); [Swtpm] runs
// swtpm as a child process on a Unix socket (no cgo, any number at once, and
// other programs can talk to it).
//
//	tpm := tpmsim.New(t, tpmsim.Options{}) // closed by t.Cleanup
//	_ = tpm.CA().Root()       // trust this
//	_ = tpm                   // give this to go-tpm, or to package attest
//
// [Faulty] wraps any TPM and makes chosen commands fail; [LoadedHandles] lists the objects that a
// program left in a TPM.
//
// Nothing here is for production: an emulated TPM protects no key, and a CA from
// this package certifies whatever it is given.
//
// # Contents of the TPM
//
// Certificates and templates are in NV indexes that the platform hierarchy owns and that anyone can
// read with the index itself as the authorisation handle and an empty password, as on real machines
// (TCG EK Credential Profile 2.6, section 2.2.2; the AK indexes are as in Google Compute Engine's
// vTPM):
//
//	0x01c00002  EK certificate, RSA-2048     (DER)
//	0x01c0000a  EK certificate, P-256        (DER)
//	0x01c10000  AK certificate, RSA          (DER)
//	0x01c10001  AK template, RSA             (TPMT_PUBLIC)
//	0x01c10002  AK certificate, ECC          (DER)
//	0x01c10003  AK template, ECC             (TPMT_PUBLIC)
//
// No key is persistent unless [Options].PersistEKs asks for it: TPM2_CreatePrimary under
// the endorsement hierarchy with the template recreates the certified key. Every hierarchy
// has the empty password.
package tpmsim
