package claims

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// A reviewedWorld has an API server that reviews the world's token.
type reviewedWorld struct {
	*world
	config ValidatorConfig
	review *Review // the answer
	err    error   // in place of it
	asked  []string
}

// newReviewedWorld is a world whose API server answers as kube-apiserver does for the world's token.
func newReviewedWorld(t testing.TB) *reviewedWorld {
	t.Helper()
	w := &reviewedWorld{world: newWorld(t)}
	w.review = &Review{
		Username: "system:serviceaccount:ns:app", UID: "app-uid",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
		Extra: map[string][]string{
			"authentication.kubernetes.io/credential-id": {"JTI=3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10"},
			"authentication.kubernetes.io/pod-name":      {"pod"}, "authentication.kubernetes.io/pod-uid": {"pod-uid"},
			"authentication.kubernetes.io/node-name": {"node-a"}, "authentication.kubernetes.io/node-uid": {"node-uid"},
		},
		Audiences: []string{worldAudience},
	}
	w.config = w.strictConfig()
	w.config.Issuers = nil
	w.config.Review = func(_ context.Context, token string, audiences []string) (*Review, error) {
		w.asked = append(w.asked, token+" for "+strings.Join(audiences, ","))
		return w.review, w.err
	}
	return w
}

func (w *reviewedWorld) validate(t testing.TB) (*Result, *NodeFacts, error) {
	t.Helper()
	return w.strictWith(t, w.config).ValidateOnNode(t.Context(), w.token(t), attested())
}

// With a review, no key is known and no signature verified; of the objects, the Node alone is read. The
// result counts as validated.
func TestReviewAccepts(t *testing.T) {
	for name, change := range map[string]func(w *reviewedWorld){
		"as kube-apiserver answers": func(*reviewedWorld) {},
		"in another order": func(w *reviewedWorld) {
			w.config.Audiences, w.claims.Audiences = []string{"b", worldAudience, "c"}, []string{worldAudience, "b"}
			w.review.Audiences = []string{worldAudience, "b"}
			slices.Reverse(w.review.Groups)
		},
		"bound to the Node": func(w *reviewedWorld) {
			w.bind("node")
			delete(w.review.Extra, "authentication.kubernetes.io/pod-name")
			delete(w.review.Extra, "authentication.kubernetes.io/pod-uid")
		},
		"no account and no pod to be read": func(w *reviewedWorld) { w.objects.account, w.objects.pod = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newReviewedWorld(t)
			change(w)
			r, facts, err := w.validate(t)
			if err != nil {
				t.Fatal(err)
			}
			if r.Key != nil || facts.Facts != endOfFacts-1 || !slices.Equal(w.objects.asked, []string{"nodes"}) || len(w.asked) != 1 {
				t.Errorf("key %v, facts %s, read %q, reviewed %q", r.Key, facts.Facts, w.objects.asked, w.asked)
			}
			if _, err := w.nodeCheck().Check(t.Context(), w.objects, r, attested(), w.now); err != nil {
				t.Errorf("the result does not count as validated: %v", err)
			}
		})
	}
}

// TestReviewRefuses changes one value of the API server's answer, or of the token that it was given
// for, at a time.
func TestReviewRefuses(t *testing.T) {
	extra := func(key string, values ...string) func(w *reviewedWorld) {
		return func(w *reviewedWorld) { w.review.Extra["authentication.kubernetes.io/"+key] = values }
	}
	without := func(key string) func(w *reviewedWorld) {
		return func(w *reviewedWorld) { delete(w.review.Extra, "authentication.kubernetes.io/"+key) }
	}
	for name, tt := range map[string]struct {
		check  Check
		change func(w *reviewedWorld)
	}{
		"an empty review":    {checkReviewUser, func(w *reviewedWorld) { w.review = &Review{} }},
		"another account":    {checkReviewUser, func(w *reviewedWorld) { w.review.Username += "2" }},
		"another namespace":  {checkReviewUser, func(w *reviewedWorld) { w.review.Username = "system:serviceaccount:ns2:app" }},
		"no service account": {checkReviewUser, func(w *reviewedWorld) { w.review.Username = "jane" }},
		"another UID":        {checkReviewUID, func(w *reviewedWorld) { w.review.UID += "2" }},
		"no UID":             {checkReviewUID, func(w *reviewedWorld) { w.review.UID = "" }},
		"a group more":       {checkReviewGroups, func(w *reviewedWorld) { w.review.Groups = append(w.review.Groups, "system:masters") }},
		"a group less":       {checkReviewGroups, func(w *reviewedWorld) { w.review.Groups = w.review.Groups[1:] }},
		"no groups":          {checkReviewGroups, func(w *reviewedWorld) { w.review.Groups = nil }},
		"another audience":   {checkReviewAudiences, func(w *reviewedWorld) { w.review.Audiences[0] += "/" }},
		"an audience more":   {checkReviewAudiences, func(w *reviewedWorld) { w.review.Audiences = append(w.review.Audiences, "b") }},
		"no audiences":       {checkReviewAudiences, func(w *reviewedWorld) { w.review.Audiences = nil }},
		"another token":      {"review-credential-id", extra("credential-id", "JTI=3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f11")},
		"two tokens":         {"review-credential-id", extra("credential-id", "JTI=3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10", "JTI=x")},
		"no credential ID":   {"review-credential-id", without("credential-id")},
		"of another issuer, as kube-apiserver reviews it": {"review-node-name", func(w *reviewedWorld) {
			w.review.Extra = map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10"}}
		}},
		"no extra":             {"review-credential-id", func(w *reviewedWorld) { w.review.Extra = nil }},
		"another pod":          {"review-pod-name", extra("pod-name", "pod2")},
		"no pod":               {"review-pod-name", without("pod-name")},
		"a pod made again":     {"review-pod-uid", extra("pod-uid", "pod-uid2")},
		"another node":         {"review-node-name", extra("node-name", "node-b")},
		"no node":              {"review-node-name", without("node-name")},
		"a Node made again":    {"review-node-uid", extra("node-uid", "node-uid2")},
		"no UID of the node":   {"review-node-uid", without("node-uid")},
		"a webhook":            {"review-validatingwebhookconfiguration-uid", extra("validatingwebhookconfiguration-uid", "x")},
		"a key of Kubernetes":  {checkReviewExtra, extra("secret-name", "x")},
		"a key of another":     {checkReviewExtra, func(w *reviewedWorld) { w.review.Extra["example.com/x"] = []string{"y"} }},
		"another jti":          {"review-credential-id", func(w *reviewedWorld) { w.claims.ID += "2" }},
		"another pod UID":      {"review-pod-uid", func(w *reviewedWorld) { w.claims.Kubernetes.Pod.UID += "2" }},
		"a token with no pod":  {"review-pod-name", func(w *reviewedWorld) { w.bind("node") }},
		"another account UID":  {checkReviewUID, func(w *reviewedWorld) { w.claims.Kubernetes.ServiceAccount.UID += "2" }},
		"not authenticated":    {CheckReview, func(w *reviewedWorld) { w.review, w.err = nil, &Error{Check: CheckReview} }},
		"neither, with a user": {CheckReview, func(w *reviewedWorld) { w.err = CheckReview }},

		"past its end, although the review says yes": {CheckExpired, func(w *reviewedWorld) { w.now = w.now.Add(time.Hour + DefaultLeeway + time.Second) }},
		"for another audience":                       {CheckAudience, func(w *reviewedWorld) { w.claims.Audiences[0] += "/" }},
		"for the issuer":                             {CheckAudience, func(w *reviewedWorld) { w.claims.Issuer = worldAudience }},
		"of no issuer":                               {CheckIssuer, func(w *reviewedWorld) { w.claims.Issuer = "" }},
		"bound to nothing":                           {checkUnbound, func(w *reviewedWorld) { w.bind() }},
		"another subject":                            {checkSubject, func(w *reviewedWorld) { w.claims.Subject += "2" }},
		"Node gone":                                  {checkNodeGone, func(w *reviewedWorld) { w.objects.node = nil }},
		"Node made again":                            {checkNodeUID, func(w *reviewedWorld) { w.objects.node.UID += "2" }},
		"machine unknown":                            {checkMachineUnknown, func(w *reviewedWorld) { w.machine = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReviewedWorld(t)
			tt.change(w)
			r, _, err := w.validate(t)
			wantCheck(t, err, tt.check)
			if r != nil || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, %v; want a refusal", r, err)
			}
		})
	}
}

// An API server of Kubernetes 1.31 gives no credential ID, if its features are not set.
func TestReviewOfAnOlderAPIServer(t *testing.T) {
	w := newReviewedWorld(t)
	w.review.Extra = nil
	if _, _, err := w.validate(t); err == nil || !strings.Contains(err.Error(), "from Kubernetes 1.32 on") {
		t.Errorf("got %v", err)
	}
}

// TestReviewUndecided: without an answer there is no decision, and nothing is read afterwards.
func TestReviewUndecided(t *testing.T) {
	for name, err := range map[string]error{"no answer": nil, "an error": errDead, "a refusal that is not the API server's": refusal.Retry(CheckReview)} {
		t.Run(name, func(t *testing.T) {
			w := newReviewedWorld(t)
			w.review, w.err = nil, err
			r, _, err := w.validate(t)
			wantCheck(t, err, refusal.ErrRetry)
			if r != nil || w.objects.asked != nil {
				t.Errorf("got %v after reading %q", r, w.objects.asked)
			}
		})
	}
}

// TestReviewIsLast: a token that its own claims refuse is not sent to the API server.
func TestReviewIsLast(t *testing.T) {
	w := newReviewedWorld(t)
	w.claims.Audiences = []string{"another"}
	_, _, err := w.validate(t)
	wantCheck(t, err, CheckAudience)
	if w.asked != nil {
		t.Errorf("reviewed %q", w.asked)
	}
	w.claims.Audiences, w.config.Audiences = []string{worldAudience}, []string{worldAudience, "b"}
	if _, _, err := w.validate(t); err != nil || !slices.Equal(w.asked, []string{w.asked[0]}) || !strings.HasSuffix(w.asked[0], " for "+worldAudience+",b") {
		t.Errorf("reviewed %q, %v", w.asked, err)
	}
}

// The token of a webhook's caller has keys of its own in the user's extra.
func TestReviewOfAWebhook(t *testing.T) {
	w := newReviewedWorld(t)
	hook, _ := newHookWorld(t)
	w.claims = hook.claims
	w.review.Extra = maps.Clone(InsecureResult(Result{Claims: hook.claims}).Extra())
	v := w.strictWith(t, w.config)
	if _, err := v.Validate(t.Context(), w.token(t)); err != nil || w.objects.asked != nil {
		t.Errorf("got %v after reading %q", err, w.objects.asked)
	}
	w.review.Extra[extraAPIGroups] = []string{"*"}
	_, err := v.Validate(t.Context(), w.token(t))
	wantCheck(t, err, checkReviewExtra)
}

// A service whose audience is the API server's has to say that it means to.
func TestReviewAudienceOfTheAPIServer(t *testing.T) {
	w := newReviewedWorld(t)
	w.config.Audiences, w.claims.Audiences, w.review.Audiences = []string{worldIssuer}, []string{worldIssuer}, []string{worldIssuer}
	_, _, err := w.validate(t)
	wantCheck(t, err, CheckAudience)
	if w.asked != nil {
		t.Errorf("reviewed %q", w.asked)
	}
	w.config.InsecureAPIServerAudience = true
	if _, _, err := w.validate(t); err != nil {
		t.Error(err)
	}
}

// TestReviewConfig: keys and a review are two ways to decide.
func TestReviewConfig(t *testing.T) {
	w := newReviewedWorld(t)
	w.config.Issuers = w.strictConfig().Issuers
	_, err := NewValidator(w.config)
	wantCheck(t, err, refusal.CheckConfig)
	w.config.Issuers, w.config.Review = nil, nil
	_, err = NewValidator(w.config)
	wantCheck(t, err, refusal.CheckConfig)
}

// TestHandlerReviews: the name of the check goes back to the client.
func TestHandlerReviews(t *testing.T) {
	w := serve(t, HandlerOptions{}, func(c *ValidatorConfig) {
		c.Issuers = nil
		c.Review = func(context.Context, string, []string) (*Review, error) { return &Review{}, CheckReview }
	})
	nodeA := w.ca.issue(t, nodeTemplate(t, "node-a"))
	response, body := w.get(t, &nodeA, "Bearer "+w.token(t))
	if response.StatusCode != http.StatusUnauthorized || body != "refused: token-review\n" {
		t.Errorf("%d %q", response.StatusCode, body)
	}
}
