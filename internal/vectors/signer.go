package main

import (
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

const (
	tokenIssuer   = "https://kubernetes.default.svc"
	tokenLifetime = 3607 // what the kubelet asks for
)

// podClaims are those of a token for a pod, issued now, as kube-apiserver writes them.
func (w *world) podClaims() string {
	b := apiserver.Bound{
		ServiceAccount: &claims.Object{Namespace: "shop", Name: "cart", UID: "uid-of-cart"},
		Pod:            &claims.Pod{Object: claims.Object{Namespace: "shop", Name: "cart-0", UID: "uid-of-cart-0"}},
		Node:           &claims.Node{Object: claims.Object{Name: forge.NodeName, UID: "uid-of-node-1"}},
	}
	c := forge.Must(apiserver.NewClaims(b, tokenLifetime, 0, []string{"https://sts.example.com"}, "3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10", w.Now))
	c.Issuer = tokenIssuer
	return string(forge.Must(c.Marshal()))
}

// signers are claim sets before an external signer, whose signature they would turn into
// whatever a verifier of tokens reads in them.
func (w *world) signers() {
	good := w.podClaims()
	signer := func(text string) *vector.Signer {
		return &vector.Signer{Issuer: tokenIssuer, MaxLifetimeSeconds: tokenLifetime, Claims: []byte(text)}
	}
	w.accept("signer-pod-token", "The claims of a token for a pod, as kube-apiserver writes them.", signer(good), nil, nil)
	edit := func(from, to string) string {
		if strings.Count(good, from) != 1 {
			forge.Check(strconv.ErrSyntax)
		}
		return strings.Replace(good, from, to, 1)
	}
	now := strconv.FormatInt(w.Now.Unix(), 10)
	end := strconv.FormatInt(w.Now.Unix()+tokenLifetime, 10)
	for _, a := range []struct{ name, what, text string }{
		{"groups", "A claim groups with system:masters stands beside those of a bound token.", edit(`"iat"`, `"groups":["system:masters"],"iat"`)},
		{"email", "A claim email stands beside those of a bound token.", edit(`"exp"`, `"email":"root@corp.example","email_verified":true,"exp"`)},
		{"cloud-tags", "A cloud's principal tags stand beside the claims of a bound token.", edit(`"iat"`, `"https://aws.amazon.com/tags":{"principal_tags":{"admin":["1"]}},"iat"`)},
		{"act", "A claim act names somebody else as the acting party.", edit(`{"aud"`, `{"act":{"sub":"system:admin"},"aud"`)},
		{"private-claim", "A member that Kubernetes does not know stands among the private claims.", edit(`{"namespace"`, `{"group":"x","namespace"`)},
		{"reference-claim", "A member that Kubernetes does not know stands in the pod's reference.", edit(`{"name":"cart-0"`, `{"kind":"x","name":"cart-0"`)},
		{"white-space", "A space follows the claim set.", good + " "},
		{"escape", "A letter of a name is written as an escape.", edit(`"namespace":"shop"`, `"namespace":"\u0073hop"`)},
		{"order", "The members stand in another order.", edit(`{"aud":["https://sts.example.com"],"exp":`+end, `{"exp":`+end+`,"aud":["https://sts.example.com"]`)},
		{"audience-text", "The audience is a string in place of an array.", edit(`["https://sts.example.com"]`, `"https://sts.example.com"`)},
		{"member-twice", "The subject stands there twice.", edit(`,"sub"`, `,"sub":"system:serviceaccount:kube-system:admin","sub"`)},
		{"subject", "The subject is another service account than the private claims name.", edit(`serviceaccount:shop:cart"`, `serviceaccount:shop:admin"`)},
		{"issuer", "The claims are another issuer's.", edit(tokenIssuer, "https://other.example.com")},
		{"lifetime", "The token lives a second longer than the signer's maximum.", edit(`"exp":`+end, `"exp":`+strconv.FormatInt(w.Now.Unix()+tokenLifetime+1, 10))},
		{"not-before", "The token is good from a time long before it was issued.", edit(`"nbf":`+now, `"nbf":`+strconv.FormatInt(w.Now.Unix()-1000000, 10))},
	} {
		w.refuse("signer-"+a.name, a.what, "signer-claims", signer(a.text), nil)
	}
}
