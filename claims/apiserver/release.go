package apiserver

import (
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// Release is the release of kube-apiserver that a [Validator] imitates. The releases differ only in
// the tokens of admission webhooks, which are bound to a webhook configuration.
type Release uint8

// The releases of kube-apiserver.
const (
	// Kubernetes137 is 1.37 as it comes: it refuses the tokens of admission webhooks.
	Kubernetes137 Release = iota
	// Kubernetes137WebhookTokens is 1.37 with its alpha gate APIServerWebhookAuthenticationToken:
	// it accepts such a token as long as the webhook configuration exists.
	Kubernetes137WebhookTokens
	// Kubernetes136 is 1.36, which ignores the claims that 1.37 added.
	//
	// Don't use it where tokens of 1.37 may come: it accepts a token that is bound to a webhook
	// configuration as one that is bound to its service account alone.
	Kubernetes136
)

// checkWebhookToken: a token is bound to a webhook configuration, and the release refuses such
// tokens, or the token has no attestations.
const checkWebhookToken refusal.Check = "webhook-token"

// checkWebhook checks whether a token may be bound to a webhook configuration.
func (v *Validator) checkWebhook(k *claims.Private) error {
	switch {
	case v.config.Release != Kubernetes137WebhookTokens:
		return refuse(`feature gate "APIServerWebhookAuthenticationToken" is disabled, but token is webhook bound`,
			&refusal.Error{Check: checkWebhookToken, Got: "a token that is bound to a webhook configuration", Want: "one without, or Kubernetes137WebhookTokens"})
	case k.Attestations == nil || len(k.Attestations.AdmissionReviewAPIGroups) == 0:
		return refuse(`bound object was a webhook config, but "admissionReviewAPIGroups" attestation is missing`,
			&refusal.Error{Check: checkWebhookToken, Got: "nothing attested", Want: "API groups"})
	}
	return nil
}
