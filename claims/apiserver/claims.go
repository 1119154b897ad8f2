package apiserver

import (
	"time"

	"github.com/nodeattest/nodeattest/claims"
)

// NewClaims makes the claims of a token for the service account b.ServiceAccount, bound to
// the pod with its node, the Secret or the node that b holds; to none of them where it
// holds none. The token lives from now for the given seconds; where warnAfter is not 0, its
// use is recorded as stale that many seconds from now on. The issuer is left empty.
//
// These are the rules of Claims in pkg/serviceaccount/claims.go of k8s.io/kubernetes
// 1.36. A Secret together with another object is an error with ReasonInternalError, as
// is a Bound without a service account.
func NewClaims(b Bound, seconds, warnAfter int64, audiences []string, id string, now time.Time) (*claims.Claims, error) {
	if b.ServiceAccount == nil {
		return nil, programming("internal error, token needs a service account")
	}
	if b.Secret != nil && (b.Pod != nil || b.Node != nil) {
		return nil, programming("internal error, token can only be bound to one object type")
	}
	account := b.ServiceAccount
	c := &claims.Claims{
		Subject:   claims.MakeSubject(account.Namespace, account.Name),
		Audiences: audiences,
		IssuedAt:  claims.NewNumericDate(now),
		NotBefore: claims.NewNumericDate(now),
		Expiry:    claims.NewNumericDate(after(now, seconds)),
		ID:        id,
		Kubernetes: claims.Private{
			Namespace:      account.Namespace,
			ServiceAccount: claims.Ref{Name: account.Name, UID: account.UID},
		},
	}
	if b.Pod != nil {
		c.Kubernetes.Pod = &claims.Ref{Name: b.Pod.Name, UID: b.Pod.UID}
	}
	if b.Secret != nil {
		c.Kubernetes.Secret = &claims.Ref{Name: b.Secret.Name, UID: b.Secret.UID}
	}
	if b.Node != nil {
		c.Kubernetes.Node = &claims.Ref{Name: b.Node.Name, UID: b.Node.UID}
	}
	if warnAfter != 0 {
		c.Kubernetes.WarnAfter = claims.NewNumericDate(after(now, warnAfter))
	}
	return c, nil
}

func after(t time.Time, seconds int64) time.Time {
	return t.Add(time.Duration(seconds) * time.Second)
}

// programming is a mistake of the calling program, which no request can cause.
func programming(message string) *StatusError {
	return &StatusError{Reason: ReasonInternalError, Code: 500, Message: message}
}
