package extsignertest

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	foreignIssuer = "https://foreign.example"
	// hugeSize is more than claims.MaxClaimsSize, for which no verifier of ours reads a token.
	hugeSize = 40 << 10
)

// Claims of a pod's token with one change, that no signer may sign. longest is the longest lifetime in seconds.
var changedClaims = []struct {
	name   string
	change func(c *claims.Claims, longest int64)
}{
	{"foreign-issuer", func(c *claims.Claims, _ int64) { c.Issuer = foreignIssuer }},
	{"issuer-and-a-slash", func(c *claims.Claims, _ int64) { c.Issuer += "/" }},
	{"no-issuer", func(c *claims.Claims, _ int64) { c.Issuer = "" }},
	{"subject-of-another-account", func(c *claims.Claims, _ int64) { c.Subject = claims.MakeSubject("kube-system", "admin") }},
	{"subject-of-a-user", func(c *claims.Claims, _ int64) { c.Subject = "system:admin" }},
	{"subject-of-a-node", func(c *claims.Claims, _ int64) { c.Subject = "system:node:node" }},
	{"namespace-of-another-account", func(c *claims.Claims, _ int64) { c.Kubernetes.Namespace = "kube-system" }},
	{"no-account", func(c *claims.Claims, _ int64) { c.Kubernetes.ServiceAccount = claims.Ref{} }},
	{"no-expiry", func(c *claims.Claims, _ int64) { c.Expiry = claims.NumericDate{} }},
	{"lifetime-too-long", func(c *claims.Claims, longest int64) { c.Expiry.Unix = c.IssuedAt.Unix + longest + 1 }},
	{"no-lifetime", func(c *claims.Claims, _ int64) { c.Expiry = c.IssuedAt }},
	{"not-valid-yet", func(c *claims.Claims, _ int64) { move(c, time.Hour) }},
	{"expired", func(c *claims.Claims, _ int64) { move(c, -3*time.Hour) }},
	{"no-token-id", func(c *claims.Claims, _ int64) { c.ID = "" }},
	{"two-bindings", func(c *claims.Claims, _ int64) { c.Kubernetes.Secret = ref("secret") }},
}

// move moves the times of claims.
func move(c *claims.Claims, by time.Duration) {
	for _, date := range []*claims.NumericDate{&c.IssuedAt, &c.NotBefore, &c.Expiry} {
		date.Unix += int64(by / time.Second)
	}
}

// Changes of the JSON text of claims.
var changedText = []struct {
	name   string
	change func(payload string) string
}{
	{"added-claim", func(p string) string { return ending(p, `,"email":"admin@example.com"}`) }},
	{"added-groups", func(p string) string { return ending(p, `,"groups":["system:masters"]}`) }},
	{"added-private-claim", func(p string) string {
		return strings.Replace(p, `"kubernetes.io":{`, `"kubernetes.io":{"groups":["system:masters"],`, 1)
	}},
	{"claim-twice", func(p string) string { return ending(p, `,"iss":"`+foreignIssuer+`"}`) }},
	{"claim-twice-the-last-ours", func(p string) string { return beginning(p, `{"iss":"`+foreignIssuer+`",`) }},
	{"claim-in-capitals", func(p string) string { return ending(p, `,"ISS":"`+foreignIssuer+`"}`) }},
	{"claim-in-capitals-before-ours", func(p string) string { return beginning(p, `{"ISS":"`+foreignIssuer+`",`) }},
	{"two-claim-sets", func(p string) string { return p + p }},
	{"array", func(p string) string { return "[" + p + "]" }},
	{"cut-json", func(p string) string { return ending(p, "") }},
	{"huge-claims", func(p string) string {
		return strings.Replace(p, `"aud":[`, `"aud":["`+strings.Repeat("a", hugeSize)+`",`, 1)
	}},
}

// beginning replaces the opening brace.
func beginning(payload, begin string) string { return begin + strings.TrimPrefix(payload, "{") }

// ending replaces the closing brace.
func ending(payload, end string) string { return strings.TrimSuffix(payload, "}") + end }

// Changes of the segment: a signer that puts a header, a dot and the request together would sign more than one
// payload, or another than it has read.
var changedSegment = []struct {
	name   string
	change func(segment string) string
}{
	{"nothing", func(string) string { return "" }},
	{"padding", func(s string) string { return s + "=" }},
	{"line-end", func(s string) string { return s[:8] + "\n" + s[8:] }},
	{"two-segments", func(s string) string { return s + "." + s }},
	{"header-of-the-caller", func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + s }},
}

// refused are the checks that no token is signed.
func refused() []check {
	var all []check
	for _, a := range changedClaims {
		all = append(all, refusedAs(a.name, func(c *claims.Claims, longest int64) (string, error) {
			a.change(c, longest)
			payload, err := c.Marshal()
			return base64.RawURLEncoding.EncodeToString(payload), err
		}))
	}
	for _, a := range changedText {
		all = append(all, refusedAs(a.name, func(c *claims.Claims, _ int64) (string, error) {
			payload, err := c.Marshal()
			return base64.RawURLEncoding.EncodeToString([]byte(a.change(string(payload)))), err
		}))
	}
	for _, a := range changedSegment {
		all = append(all, refusedAs(a.name, func(c *claims.Claims, _ int64) (string, error) {
			payload, err := c.Marshal()
			return a.change(base64.RawURLEncoding.EncodeToString(payload)), err
		}))
	}
	return all
}

// refusedAs is the check that a signer refuses the segment which attack makes of a pod's claims.
func refusedAs(name string, attack func(c *claims.Claims, longest int64) (string, error)) check {
	return check{"refuses-" + name, func(ctx context.Context, r *remote) error {
		longest, err := r.longest(ctx)
		if err != nil {
			return err
		}
		c := r.claims(min(kubeletLifetime, max(longest, minLifetime)))
		bindPod(c)
		segment, err := attack(c, longest)
		if err != nil {
			return err
		}
		return r.refuses(ctx, segment)
	}}
}

// refuses sends claims that must not be signed.
func (r *remote) refuses(ctx context.Context, segment string) error {
	_, err := r.client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: segment})
	switch status.Code(err) {
	case codes.OK:
		text, _ := base64.RawURLEncoding.DecodeString(segment) // "" for one that is no base64
		return fmt.Errorf("it signed the claims %s, want an error", refusal.Quote(string(text)))
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted,
		codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("it has not decided, want a refusal: %w", err)
	}
	return nil
}
