package join_test
import ("crypto/ecdsa";"crypto/elliptic";"crypto/rand";"crypto/x509";"crypto/x509/pkix";"log";"math/big";"time";"github.com/nodeattest/nodeattest/csr")
var bootstrapper = csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }
func clusterCA() (*x509.Certificate, *ecdsa.PrivateKey) {
	key, now := newKey(), time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)))), key
}
func must[T any](v T, err error) T { if err != nil { log.Fatal(err) }; return v }
