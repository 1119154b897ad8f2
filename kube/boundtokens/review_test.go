package boundtokens_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/refusal"
)

const goodReview = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"audiences":["a"],
	"user":{"username":"system:serviceaccount:shop:cart","uid":"u","groups":["g"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=1"]}}}}`

// TestReview sends the token and the audiences in one request, and returns the user and the audiences.
func TestReview(t *testing.T) {
	api, cluster := newCluster(t, boundtokens.Options{})
	api.set(reviewPath, send(http.StatusCreated, goodReview))
	got, err := cluster.Review(t.Context(), "the.to.ken", []string{"a", "b"})
	want := &claims.Review{Username: "system:serviceaccount:shop:cart", UID: "u", Groups: []string{"g"}, Audiences: []string{"a"},
		Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=1"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	const body = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"token":"the.to.ken","audiences":["a","b"]},"status":{"user":{}}}`
	if len(api.asked) != 1 || api.asked[0] != "POST "+reviewPath+" application/json" || api.bodies[0] != body {
		t.Errorf("sent %q %q", api.asked, api.bodies)
	}
}

// TestReviewRefused: only an API server that says so refuses a token.
func TestReviewRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"not authenticated": {send(201, strings.Replace(goodReview, "true", "false", 1)), claims.CheckReview},
		"no status":         {send(201, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}`), claims.CheckReview},
		"with a reason": {send(201, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"error":"the.to.ken has expired"}}`),
			claims.CheckReview},
		"another kind":    {send(201, strings.Replace(goodReview, "TokenReview", "SelfSubjectReview", 1)), refusal.ErrRetry},
		"another version": {send(201, strings.Replace(goodReview, "/v1", "/v1beta1", 1)), refusal.ErrRetry},
		"no object":       {send(201, "{}"), refusal.ErrRetry},
		"no JSON":         {send(201, goodReview[1:]), refusal.ErrRetry},
		"no right":        {status(403, "Forbidden"), refusal.ErrRetry},
		"no resource":     {status(404, "NotFound"), refusal.ErrRetry},
		"invalid":         {status(422, "Invalid"), refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			api, cluster := newCluster(t, boundtokens.Options{})
			api.set(reviewPath, tt.answer)
			got, err := cluster.Review(t.Context(), "the.to.ken", []string{"a"})
			wantError(t, err, tt.want)
			if got != nil || strings.Contains(err.Error(), "the.to.ken") {
				t.Errorf("got %+v, %v", got, err)
			}
			if name == "with a reason" && !strings.Contains(err.Error(), "<token> has expired") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestReviewKeepsTheToken: no answer brings the token into an error, which is logged: a server, a proxy or an
// admission policy may repeat what it was sent.
func TestReviewKeepsTheToken(t *testing.T) {
	for _, length := range []int{20, 400} {
		token := "eyJh." + strings.Repeat("c", length) + ".c2ln"
		echo := func(code int, before, after string) http.HandlerFunc { return send(code, before+token+after) }
		for name, answer := range map[string]http.HandlerFunc{
			"a proxy":         echo(502, `cannot send {"spec":{"token":"`, `"}}`),
			"a policy":        echo(422, `{"kind":"Status","status":"Failure","reason":"Invalid","code":422,"message":"denied: `, `"}`),
			"not accepted":    echo(200, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"error":"invalid `, `"}}`),
			"of another kind": echo(200, `{"kind":"`, `","metadata":{"name":"x"}}`),
			"no JSON":         echo(200, `{"kind":1,"apiVersion":"`, `"}`),
			"a redirect": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/"+token, http.StatusTemporaryRedirect)
			},
		} {
			api, cluster := newCluster(t, boundtokens.Options{})
			api.set(reviewPath, answer)
			review, err := cluster.Review(t.Context(), token, []string{"a"})
			if review != nil || err == nil || strings.Contains(err.Error(), token[:25]) {
				t.Errorf("%s: got %v, %v", name, review, err)
			}
		}
	}
}
