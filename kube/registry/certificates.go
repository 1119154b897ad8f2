package registry

import (
	"encoding/hex"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// certificatesOf returns the records of a node's certificates as they are stored; nil for
// none.
func certificatesOf(issued []csr.IssuedRecord) []v1alpha1.IssuedCertificate {
	var stored []v1alpha1.IssuedCertificate
	for i := range issued {
		r := &issued[i]
		stored = append(stored, v1alpha1.IssuedCertificate{
			CredentialID: r.CredentialID, SignerName: r.SignerName, Machine: r.Machine, MachineUID: r.MachineUID, NodeUID: r.NodeUID,
			ProviderID: r.ProviderID, RequestUID: r.RequestUID, KeyResidence: r.KeyResidence, FiledWith: r.FiledWith, SPKISHA256: hex.EncodeToString(r.SPKIHash[:]),
			NotBefore: timeIn(r.NotBefore), NotAfter: metav1.NewTime(r.NotAfter),
		})
	}
	return stored
}

var errDigest = errors.New("got a spkiSHA256 that is no SHA-256 digest in hexadecimal")

// issuedOf is the inverse of certificatesOf.
func issuedOf(nodeName string, stored []v1alpha1.IssuedCertificate) ([]csr.IssuedRecord, error) {
	var issued []csr.IssuedRecord
	for i := range stored {
		c := &stored[i]
		r := csr.IssuedRecord{
			CredentialID: c.CredentialID, NodeName: nodeName, SignerName: c.SignerName, Machine: c.Machine, MachineUID: c.MachineUID, NodeUID: c.NodeUID,
			ProviderID: c.ProviderID, RequestUID: c.RequestUID, KeyResidence: c.KeyResidence, FiledWith: c.FiledWith, NotBefore: timeOf(c.NotBefore), NotAfter: c.NotAfter.UTC(),
		}
		digest, err := hex.DecodeString(c.SPKISHA256)
		if err != nil || len(digest) != len(r.SPKIHash) {
			return nil, errDigest
		}
		copy(r.SPKIHash[:], digest)
		issued = append(issued, r)
	}
	return issued, nil
}
