package csr

// BlockProposalData is the label that the example of the Cluster API proposal
// ("Attestation data") has where its table has BlockData. GKE's requests have it too.
const BlockProposalData = "ATTESTATION DATA"

// proposalBlocks is the order of the blocks in the proposal's spelling.
var proposalBlocks = []string{BlockRequest, BlockProposalData}

// ParseProposal reads a request as the example of the Cluster API proposal spells it:
// a CERTIFICATE REQUEST block and an ATTESTATION DATA block, with no block that names
// the provider. So the result has Data and an empty Provider; the caller knows from the
// signer name whose data it is, and Encode refuses it: this form is read, never
// written.
//
// It is as strict as [Parse], but for one thing: the data may stand in a single line of
// any length, as in the proposal's example. The errors are those of Parse.
func ParseProposal(pem []byte) (*Bundle, error) {
	r := blockReader{labels: proposalBlocks, unwrapped: BlockProposalData}
	if err := r.readAll(pem); err != nil {
		return nil, err
	}
	b := &Bundle{Request: r.bodies[0], Data: r.bodies[1]}
	if err := checkRequestShape(b.Request); err != nil {
		return nil, err
	}
	if b.Data == nil {
		return nil, missing(BlockProposalData)
	}
	return b, nil
}
