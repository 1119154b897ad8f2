package tpmsim

// For the tests from outside.
<<<<<<< HEAD
var (
	EKCertificateIndexRSA2048 = algorithms[RSA2048].ekCertificate
	EKCertificateIndexP256    = algorithms[P256].ekCertificate
	EKCertificateIndexP384    = algorithms[P384].ekCertificate
	EKCertificateIndexRSA3072 = algorithms[RSA3072].ekCertificate
	AKCertificateIndexRSA     = algorithms[RSA2048].akCertificate
	AKTemplateIndexRSA        = algorithms[RSA2048].akTemplate
	AKTemplateIndexECC        = algorithms[P256].akTemplate
	EKHandleRSA2048           = algorithms[RSA2048].ekHandle
	EKHandleP256              = algorithms[P256].ekHandle
	EKHandleP384              = algorithms[P384].ekHandle
	EKHandleRSA3072           = algorithms[RSA3072].ekHandle
=======
const (
	EKCertificateIndexRSA2048 = ekCertificateIndexRSA2048
	EKCertificateIndexP256    = ekCertificateIndexP256
	EKCertificateIndexP384    = ekCertificateIndexP384
	EKCertificateIndexRSA3072 = ekCertificateIndexRSA3072
	AKCertificateIndexRSA     = akCertificateIndexRSA
	AKTemplateIndexRSA        = akTemplateIndexRSA
	AKTemplateIndexECC        = akTemplateIndexECC
	EKHandleP384              = ekHandleP384
	EKHandleRSA3072           = ekHandleRSA3072
)
>>>>>>> interop

	ErrClosed, ErrNoSwtpm = errClosed, errNoSwtpm
)

// OpenSwtpm is Swtpm with an error in place of a test.
func OpenSwtpm(o Options) (*TPM, error) {
	tpm, _, err := openSwtpm(o)
	return tpm, err
}
