package tpm

import (
	"crypto/x509"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkEnrolment: a result does not prove an AK to a CA: it is not an admitted answer, or not
// one on the road of the EK, the only road on which the AK is proven.
const checkEnrolment refusal.Check = "enrolment"

// EnrolledAK returns what to certify about the AK that a machine has proven to a CA of AK
// certificates, for [tpmcert.CreateAKCertificate]: everything but the validity.
//
// The result is that of an ordinary join on [attest.RoadEK], to the cluster whose ID is the
// one of the CA's certificate ([attest.ClusterID]). So the AK's public area is that of a
// restricted key in the TPM of the EK, which opened a credential for that area's Name
// (TPM2_MakeCredential, TPM2_ActivateCredential), for this requester and in this challenge's
// window; the EK is trusted and not revoked, and the Authorizer has admitted the machine. A
// copy of the answer to the challenge gets at most another certificate for the same AK.
//
// The PermanentIdentifier is the EK's identity, which the caller may replace with a name by
// which the Authorizer knows the machine. A refusal is a [*refusal.Error] with the check
// "enrolment", or with [attest.CheckBindingCluster] if the machine meant to enrol elsewhere.
func EnrolledAK(r *attest.Result, ca *x509.Certificate) (tpmcert.AKTemplate, error) {
	id, err := attest.ClusterID(ca)
	if err != nil {
		return tpmcert.AKTemplate{}, err
	}
	if r == nil || r.Attested() == nil || r.Road != attest.RoadEK || DetailsOf(r) == nil {
		return tpmcert.AKTemplate{}, &refusal.Error{Check: checkEnrolment, Got: "a result without a proven AK", Want: "that of an admitted answer on road ek"}
	}
	if r.ClusterID != id {
		return tpmcert.AKTemplate{}, &refusal.Error{Check: attest.CheckBindingCluster, Got: r.ClusterID, Want: "the CA's, " + id}
	}
	d := DetailsOf(r)
	key, err := d.AKPublic.Key()
	return tpmcert.AKTemplate{Key: key, PermanentIdentifier: string(r.Machine), Directory: d.Directory}, err
}
