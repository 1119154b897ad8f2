package boundtokens

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// Review has the API server review a token (TokenReview), for [claims.ValidatorConfig].Review. If it does
// not authenticate the token, the error wraps [claims.CheckReview]; kube-apiserver answers so too
// when its own look-up of an object failed. Without an answer the error is [refusal.ErrRetry].
// No error has the token, whatever the answer repeats.
func (c *Cluster) Review(ctx context.Context, token string, audiences []string) (*claims.Review, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	const kind = "TokenReview"
	version := authenticationv1.SchemeGroupVersion
	body, err := json.Marshal(&authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: version.String()},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	})
	if err != nil {
		return nil, refusal.Retry(fmt.Errorf("boundtokens: %w", err))
	}
	var got authenticationv1.TokenReview
	t := target{of: version.WithResource("tokenreviews"), secret: token}
	if err := c.do(ctx, http.MethodPost, t, acceptWhole, body, &got); err != nil {
		return nil, err
	}
	if got.Kind != kind || got.APIVersion != version.String() {
		return nil, another(t, got.Kind, &got.ObjectMeta)
	}
	if !got.Status.Authenticated {
		reason := refusal.OrNothing(refusal.Text(got.Status.Error))
		return nil, fmt.Errorf("boundtokens: %w: the API server's reason: %s", claims.CheckReview, reason)
	}
	user := &got.Status.User
	review := &claims.Review{Username: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string][]string{}, Audiences: got.Status.Audiences}
	for key, values := range user.Extra {
		review.Extra[key] = values
	}
	return review, nil
}
