package csr

// Labels of the blocks that GKE's nodes put behind the request, in the order in which
// they were written (cloud-provider-gcp, cmd/gke-exec-auth-plugin).
const (
	// BlockGKESignature holds the signature over the block ATTESTATION DATA.
	BlockGKESignature = "ATTESTATION SIGNATURE"
	// BlockGKEIdentity holds the identity of the virtual machine in JSON.
	BlockGKEIdentity = "VM IDENTITY"
	// BlockGKECertificate holds the AK's certificate in DER.
	BlockGKECertificate = "ATTESTATION CERTIFICATE"
)

// gkeBlocks is the order of the blocks of GKE's dialect.
var gkeBlocks = []string{BlockRequest, BlockProposalData, BlockGKESignature, BlockGKEIdentity, BlockGKECertificate}

// GKEBundle is a request of GKE's nodes with TPM evidence, as cloud-provider-gcp made
// and read it until 2024. Nothing in it is fresh: GKE certified keys without qualifying
// data.
type GKEBundle struct {
	// Request is the PKCS#10 request in DER, as in Bundle.
	Request []byte
	// Attest is the TPMS_ATTEST of TPM2_Certify, without a size before it.
	Attest []byte
	// Signature is the AK's signature over Attest: the bare bytes of an
	// RSASSA-PKCS1-v1_5 signature with SHA-256, no TPMT_SIGNATURE.
	Signature []byte
	// Identity is the machine that the request claims to come from. Nothing in the
	// request proves it.
	Identity GKEIdentity
	// IdentityJSON is the JSON that Identity was read from, as received.
	IdentityJSON []byte
	// Certificate is what the node read from the NV index of the AK certificate: DER,
	// unless the index held something else. It is nil where there was none. GKE's own
	// approver never read it.
	Certificate []byte
}

// ParseGKE reads GKE's dialect: the blocks CERTIFICATE REQUEST, ATTESTATION DATA,
// ATTESTATION SIGNATURE and VM IDENTITY, and ATTESTATION CERTIFICATE where the node had
// one, in this order and once each. GKE's approver took them in any order and let the
// last of several win. It is as strict as [Parse] and has its errors, and
// [CheckGKEIdentity] for the identity's JSON. This form is read, never written.
func ParseGKE(pem []byte) (*GKEBundle, error) {
	r := blockReader{labels: gkeBlocks}
	if err := r.readAll(pem); err != nil {
		return nil, err
	}
	b := &GKEBundle{
		Request:      r.bodies[0],
		Attest:       r.bodies[1],
		Signature:    r.bodies[2],
		IdentityJSON: r.bodies[3],
		Certificate:  r.bodies[4],
	}
	if err := checkRequestShape(b.Request); err != nil {
		return nil, err
	}
	for i, body := range r.bodies[:4] {
		if body == nil {
			return nil, missing(gkeBlocks[i])
		}
	}
	var err error
	if b.Identity, err = parseGKEIdentity(b.IdentityJSON); err != nil {
		return nil, err
	}
	return b, nil
}
