package extsignertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/recovered"
)

const (
	atOnce = 16 // calls at the same time
	// manyAudiences are so many that the claims have some 30 KiB.
	manyAudiences = 1000
)

// Claims that kube-apiserver writes for the kinds of bound tokens.
var bindings = []struct {
	name string
	bind func(c *claims.Claims)
}{
	{"an-account", func(*claims.Claims) {}},
	{"a-pod", bindPod},
	{"a-pod-without-a-node", func(c *claims.Claims) { c.Kubernetes.Pod = ref("pod") }},
	{"a-pod-of-a-node-that-is-gone", func(c *claims.Claims) { bindPod(c); c.Kubernetes.Node.UID = "" }},
	{"a-node", func(c *claims.Claims) { c.Kubernetes.Node = ref("node") }},
	{"a-secret", func(c *claims.Claims) { c.Kubernetes.Secret = ref("secret") }},
	{"a-webhook", func(c *claims.Claims) { // of Kubernetes 1.37
		c.Expiry.Unix = c.IssuedAt.Unix + minLifetime
		c.Kubernetes.ValidatingWebhookConfiguration = ref("webhook")
		c.Kubernetes.Attestations = &claims.Attestations{AdmissionReviewAPIGroups: []string{"*"}}
	}},
	{"many-audiences", func(c *claims.Claims) {
		c.Audiences = nil
		for i := range manyAudiences {
			c.Audiences = append(c.Audiences, fmt.Sprintf("https://%d.audience.example", i))
		}
	}},
}

func bindPod(c *claims.Claims) { c.Kubernetes.Pod, c.Kubernetes.Node = ref("pod"), ref("node") }

func ref(name string) *claims.Ref { return &claims.Ref{Name: name, UID: name + "-uid"} }

// claims returns the claims of a token for a service account, that begins now.
func (r *remote) claims(lifetime int64) *claims.Claims {
	now := time.Now()
	return &claims.Claims{
		Issuer: r.issuer, Subject: claims.MakeSubject("shop", "cart"), Audiences: []string{"https://audience.example"},
		IssuedAt: claims.NewNumericDate(now), NotBefore: claims.NewNumericDate(now),
		Expiry: claims.NewNumericDate(now.Add(time.Duration(lifetime) * time.Second)),
		ID:     newID(), Kubernetes: claims.Private{Namespace: "shop", ServiceAccount: *ref("cart")},
	}
}

// newID makes the ID of a token, a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// usualLifetime is the lifetime of a token of a kubelet, or the longest if that is less.
func (r *remote) usualLifetime(ctx context.Context) (int64, error) {
	longest, err := r.longest(ctx)
	return min(kubeletLifetime, max(longest, minLifetime)), err
}

// signed are the checks that tokens are signed.
func signed() []check {
	var all []check
	for _, b := range bindings {
		all = append(all, check{"signs-" + b.name, func(ctx context.Context, r *remote) error {
			lifetime, err := r.usualLifetime(ctx)
			if err != nil {
				return err
			}
			c := r.claims(lifetime)
			b.bind(c)
			return r.signs(ctx, c)
		}})
	}
	return append(all,
		check{"signs-the-longest-lifetime", func(ctx context.Context, r *remote) error {
			longest, err := r.longest(ctx)
			if err != nil {
				return err
			}
			c := r.claims(min(max(longest, minLifetime), maxLifetime))
			bindPod(c)
			c.Kubernetes.WarnAfter = claims.NewNumericDate(time.Unix(c.IssuedAt.Unix+minLifetime, 0))
			return r.signs(ctx, c)
		}},
		check{"signs-at-once", signsAtOnce},
	)
}

// signs has claims signed with a key that was published before, and judges the answer.
func (r *remote) signs(ctx context.Context, c *claims.Claims) error {
	judge, err := r.judge(ctx)
	if err != nil {
		return err
	}
	payload, err := c.Marshal()
	if err != nil {
		return err
	}
	_, err = judge.Sign(ctx, base64.RawURLEncoding.EncodeToString(payload))
	return err
}

// signsAtOnce has several claims signed at the same time.
func signsAtOnce(ctx context.Context, r *remote) error {
	lifetime, err := r.usualLifetime(ctx)
	if err != nil {
		return err
	}
	var calls [atOnce]<-chan error
	for i := range calls {
		calls[i] = recovered.Go(func() error { return r.signs(ctx, r.claims(lifetime)) })
	}
	var first error
	for _, call := range calls {
		first = cmp.Or(first, <-call)
	}
	if first != nil {
		return errors.Join(errors.New("of calls at once"), first)
	}
	return nil
}
