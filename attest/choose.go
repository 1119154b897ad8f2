package attest

import (
	"context"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkProviderUnknown: no kind is for the signer of the request. Such a request is not denied: see
// [csr.ErrOtherSigner].
const checkProviderUnknown Check = "provider-unknown"

// serves reports whether nodes with this kind of evidence may file under a signer.
func (k *openKind) serves(signerName string) bool {
	return signerName == csr.SignerKubeAPIServerClientKubelet || csr.ProviderOf(signerName) == k.Provider
}

// choose returns the kind for a request: by its signer name or, under Kubernetes' own signers, by its
// provider block. The block never overrides the signer name: it must agree, and state an accepted
// version.
func (v *Verifier) choose(ctx context.Context, request *csr.Parsed) (*openKind, error) {
	if v == nil || len(v.kinds) == 0 || request.Request() == nil {
		return nil, errNotMade
	}
	if err := ended(ctx); err != nil {
		return nil, refusal.Retry(err)
	}
	signer := request.Request().Spec.SignerName
	served := slices.Contains(v.signers, signer)
	var names []string // of the kinds to choose from
	for _, k := range v.kinds {
		if signer == k.challengeSigner || served && k.serves(signer) {
			names = append(names, k.Provider)
		}
	}
	if len(names) == 0 {
		refused := &Error{Check: checkProviderUnknown, Got: refusal.Quote(signer), Want: "a signer that selects a provider"}
		if signer != "" { // which no API server accepts
			refused.Err = refusal.Retry(csr.ErrOtherSigner)
		}
		return nil, refused
	}
	bundle, err := request.Bundle()
	if err != nil {
		return nil, err
	}
	got := "a request without evidence"
	if bundle.Provider != "" {
		got = refusal.Quote(bundle.Provider)
	}
	name, version, _ := bundle.ProviderVersion() // "" without a provider block
	if !slices.Contains(names, name) {
		return nil, &Error{Check: csr.CheckAttestationProvider, Got: got, Want: "evidence for provider " + strings.Join(names, " or ")}
	}
	k := v.kinds[slices.IndexFunc(v.kinds, func(k *openKind) bool { return k.Provider == name })]
	if !slices.Contains(k.Versions, version) {
		supported := k.formats()
		return nil, &Error{Check: csr.CheckProviderVersion, Got: got, Want: strings.Join(supported, " or "), Err: &csr.UnsupportedVersionError{Supported: supported}}
	}
	return k, nil
}

// formats returns the names of the accepted versions, newest first.
func (k *openKind) formats() []string {
	var names []string
	for _, version := range slices.Backward(k.Versions) {
		names = append(names, formatOf(k.Provider, version))
	}
	return names
}
