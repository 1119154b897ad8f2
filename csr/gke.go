package csr

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// Labels of the blocks that GKE's nodes put after the request, in the order in which
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

// GKEBundle is a request with TPM evidence from a GKE node, as cloud-provider-gcp wrote and
// read it until 2024. Nothing in it is fresh: GKE certified keys without qualifying data.
type GKEBundle struct {
	// Request is the PKCS#10 request in DER, as in Bundle.
	Request []byte
	// Attest is the TPMS_ATTEST of TPM2_Certify, without a size prefix.
	Attest []byte
	// Signature is the AK's signature over Attest: the bare bytes of an RSASSA-PKCS1-v1_5
	// signature with SHA-256, not a TPMT_SIGNATURE.
	Signature []byte
	// Identity is the machine that the request claims to come from. Nothing in the
	// request proves it.
	Identity GKEIdentity
	// IdentityJSON is the JSON that Identity was read from, as received.
	IdentityJSON []byte
	// Certificate is what the node read from the NV index of the AK certificate: DER, unless
	// the index held something else. It is nil if there was none. GKE's own approver never
	// read it.
	Certificate []byte
}

// ParseGKE reads GKE's dialect: the blocks CERTIFICATE REQUEST, ATTESTATION DATA,
// ATTESTATION SIGNATURE and VM IDENTITY, and ATTESTATION CERTIFICATE if the node had one, in
// this order and once each. GKE's approver accepted them in any order and let the last of
// several win. ParseGKE is as strict as [Parse] and has the same errors, and
// [CheckGKEIdentity] for the identity's JSON. This form is read, never written.
func ParseGKE(pem []byte) (*GKEBundle, error) {
	r := blockReader{labels: gkeBlocks}
	if err := r.readAll(pem); err != nil {
		return nil, err
	}
	if err := r.need(BlockProposalData, BlockGKESignature, BlockGKEIdentity); err != nil {
		return nil, err
	}
	raw := r.block(BlockGKEIdentity)
	identity, err := parseGKEIdentity(raw)
	if err != nil {
		return nil, err
	}
	return &GKEBundle{
		Request:      r.block(BlockRequest),
		Attest:       r.block(BlockProposalData),
		Signature:    r.block(BlockGKESignature),
		Identity:     identity,
		IdentityJSON: raw,
		Certificate:  r.block(BlockGKECertificate),
	}, nil
}

// CheckGKEIdentity: the block VM IDENTITY is one JSON object with the five members of
// GKEIdentity.
const CheckGKEIdentity Check = "gke-identity"

// maxGKEIdentity bounds the length in bytes of a VM IDENTITY. Real ones have about 150.
const maxGKEIdentity = 4 << 10

// GKEIdentity names a virtual machine as in the block VM IDENTITY of GKE's dialect
// (cloud-provider-gcp, pkg/nodeidentity). No field is zero in what [ParseGKE] returns.
type GKEIdentity struct {
	Zone string // member "zone", such as "us-central1-a"
	ID   uint64 // member "id": the instance's number
	Name string // member "name": the instance's name
	// ProjectNumber is the member "project_id", which is a number despite its name.
	ProjectNumber uint64
	// ProjectID is the member "project_name".
	ProjectID string
}

// parseGKEIdentity reads one JSON object in UTF-8. Each of the five members must be there
// once, spelled exactly as here. Other members are skipped, unless their names differ from
// one of the five only in case, so that encoding/json would take them for it. No object in
// it may have two members with the same name.
func parseGKEIdentity(raw []byte) (GKEIdentity, error) {
	if len(raw) > maxGKEIdentity {
		return GKEIdentity{}, &Error{Check: CheckGKEIdentity, Got: strconv.Itoa(len(raw)) + " bytes",
			Want: "at most " + strconv.Itoa(maxGKEIdentity)}
	}
	var id GKEIdentity
	number := func(to *uint64) func(*strictjson.Reader) error {
		return func(r *strictjson.Reader) error {
			text, err := r.Number()
			if err == nil {
				*to, err = strconv.ParseUint(string(text), 10, 64)
			}
			return err
		}
	}
	err := strictjson.Members{ // "Zone" too is skipped: next to "zone" it is refused, and by itself it leaves Zone empty
		"zone": strictjson.Into(&id.Zone), "id": number(&id.ID), "name": strictjson.Into(&id.Name),
		"project_id": number(&id.ProjectNumber), "project_name": strictjson.Into(&id.ProjectID),
	}.Parse(raw)
	want := ""
	switch {
	case err != nil:
		want = "one JSON object in UTF-8"
	case strings.ContainsRune(id.Zone+id.Name+id.ProjectID, utf8.RuneError):
		want = "text without U+FFFD, which stands for what is no text"
	case id.Zone == "" || id.ID == 0 || id.Name == "" || id.ProjectNumber == 0 || id.ProjectID == "":
		want = "zone, id, name, project_id and project_name, none empty or zero"
	default:
		return id, nil
	}
	return GKEIdentity{}, &Error{Check: CheckGKEIdentity, Got: refusal.Quote(string(raw)), Want: want, Err: err}
}
