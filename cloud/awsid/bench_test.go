package awsid_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/awsid"
)

// BenchmarkVerify verifies one document: with this package, and the bare
// operations, which are two digests, a signature and one reading of the JSON.
func BenchmarkVerify(b *testing.B) {
	a, certificates := openAuthority(), table()
	s := newShape(a, goodJSON)
	data := s.marshal(a)
	signature := signatureBy(a, s)
	attributes := []byte(nil)
	for _, attribute := range s.attributes {
		attributes = append(attributes, attribute...)
	}
	attributes = append([]byte{0x31, byte(len(attributes))}, attributes...)
	key := a.key.Public().(*rsa.PublicKey)
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"bare", func() error {
			var d struct{ AccountID, Region, InstanceID, PendingTime string }
			if err := json.Unmarshal([]byte(goodJSON), &d); err != nil {
				return err
			}
			_, digest := sha256.Sum256([]byte(goodJSON)), sha256.Sum256(attributes)
			return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature)
		}},
		{"nodeattest", func() error {
			_, err := awsid.Verify(data, certificates, now)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
