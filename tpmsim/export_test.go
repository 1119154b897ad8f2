package tpmsim

// For the tests from outside.
var (
	EKCertificateIndexRSA2048 = algorithms[RSA2048].ekCertificate
	EKCertificateIndexP256    = algorithms[P256].ekCertificate
	EKCertificateIndexP384    = algorithms[P384].ekCertificate
	EKCertificateIndexRSA3072 = algorithms[RSA3072].ekCertificate
	AKCertificateIndexRSA     = algorithms[RSA2048].akCertificate
	AKTemplateIndexRSA        = algorithms[RSA2048].akTemplate
	AKTemplateIndexECC        = algorithms[P256].akTemplate
	EKHandleP384              = algorithms[P384].ekHandle
	EKHandleRSA3072           = algorithms[RSA3072].ekHandle

	ErrClosed, ErrNoSwtpm = errClosed, errNoSwtpm
)

// OpenSwtpm is Swtpm with an error in place of a test.
func OpenSwtpm(o Options) (*TPM, error) {
	tpm, _, err := openSwtpm(o)
	return tpm, err
}
