package attest

import (
	"context"

	"github.com/nodeattest/nodeattest/csr"
)

// VerifyClientAttestationData is [Verifier.Verify] for a request for a client or recovery
// certificate, and refuses others. The Details of its result are the [Result].
func (v *Verifier) VerifyClientAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return v.provide(ctx, request, false)
}

// VerifyServingAttestationData is [Verifier.Verify] for a request for a serving certificate, and
// refuses others. The Details of its result are the [Result].
func (v *Verifier) VerifyServingAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return v.provide(ctx, request, true)
}

// checkProviderPurpose: a request for a client certificate was passed to the method for serving
// certificates, or the other way round.
const checkProviderPurpose Check = "provider-purpose"

func (v *Verifier) provide(ctx context.Context, request *csr.Parsed, serving bool) (*csr.Attested, error) {
	if filed := request.Request(); filed != nil {
		purpose, err := csr.PurposeOf(filed.Spec.SignerName)
		if err == nil && (purpose == csr.PurposeServing) != serving {
			return nil, &Error{Check: checkProviderPurpose, Got: "a request for a " + purpose.String() + " certificate", Want: "one of the method's purpose"}
		}
	}
	r, err := v.verify(ctx, request)
	if err != nil {
		return nil, err
	}
	return r.Attested(), nil
}

// MachineName is the machine's name in the inventory of the verifier's policy.
func (v *Verifier) MachineName(_ context.Context, attested *csr.Attested) (string, error) {
	return attested.InventoryName()
}
