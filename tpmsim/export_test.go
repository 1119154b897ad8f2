package tpmsim

// For the tests from outside.
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

var ErrClosed, ErrNoSwtpm = errClosed, errNoSwtpm

// OpenSwtpm is Swtpm with an error in place of a test.
func OpenSwtpm(o Options) (*TPM, error) {
	tpm, _, err := openSwtpm(o)
	return tpm, err
}
