//go:build kubernetes137

package kubernetes

import (
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/kubernetes/pkg/apis/authentication"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/nodeattest/nodeattest/claims/apiserver"
)

// releases are the possible releases of Kubernetes' modules here.
var releases = []release{
	{name: "1.37.2", as: apiserver.Kubernetes137, gate: "APIServerWebhookAuthenticationToken=false", kinds: []string{"feature gate"}},
	{name: "1.37.2 with APIServerWebhookAuthenticationToken", as: apiserver.Kubernetes137WebhookTokens, gate: "APIServerWebhookAuthenticationToken=true",
		kinds: []string{"bound object was a webhook config", "ValidatingWebhookConfiguration UID", "MutatingWebhookConfiguration UID"}},
}

// knowsHooks says whether the generator binds tokens to webhook configurations.
const knowsHooks = true

// theirClaims is Kubernetes' generator.
func theirClaims(sa core.ServiceAccount, b theirBound, seconds, warnAfter int64, audiences []string) (*jwt.Claims, any, error) {
	var attestations map[string]authentication.AttestationValue
	if b.groups != nil {
		attestations = map[string]authentication.AttestationValue{authentication.AttestationAdmissionReviewAPIGroups: b.groups}
	}
	return serviceaccount.Claims(sa, b.pod, b.secret, b.node, b.validating, b.mutating, seconds, warnAfter, audiences, attestations)
}
