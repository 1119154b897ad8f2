package claims

import (
	"strconv"
	"time"
)

// NumericDate is a claim that states a time (RFC 7519, section 2), in whole seconds.
// The zero value is an absent claim, which is not the same as the time 0.
type NumericDate struct {
	// Unix is the time in seconds since 1970-01-01T00:00:00Z, leap seconds ignored.
	Unix int64
	// Present says that the claim is there. Unix is 0 where it is not.
	Present bool
}

// NewNumericDate returns the claim for a time, cut to whole seconds as kube-apiserver
// cuts it. The zero time gives an absent claim.
func NewNumericDate(t time.Time) NumericDate {
	if t.IsZero() {
		return NumericDate{}
	}
	return NumericDate{Unix: t.Unix(), Present: true}
}

// Time returns the claim's time in UTC; the zero time where the claim is absent.
func (d NumericDate) Time() time.Time {
	if !d.Present {
		return time.Time{}
	}
	return time.Unix(d.Unix, 0).UTC()
}

// IsZero reports whether the claim is absent.
func (d NumericDate) IsZero() bool { return !d.Present }

// MarshalJSON writes the number; null where the claim is absent.
func (d NumericDate) MarshalJSON() ([]byte, error) {
	if !d.Present {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, d.Unix, 10), nil
}

// Claims is the claim set of a service-account token: the registered claims of RFC
// 7519, section 4.1, and the private claim "kubernetes.io" (pkg/serviceaccount/claims.go
// in k8s.io/kubernetes). Nothing in it is verified. An empty string or slice is an
// absent claim: kube-apiserver neither writes nor tells apart an empty one.
type Claims struct {
	// Issuer is "iss": the URL of the cluster's issuer.
	Issuer string
	// Subject is "sub": "system:serviceaccount:<namespace>:<name>".
	Subject string
	// Audiences is "aud". Kubernetes always writes an array, even of one; a token
	// without any is good for the API server only.
	Audiences []string
	// Expiry is "exp".
	Expiry NumericDate
	// NotBefore is "nbf".
	NotBefore NumericDate
	// IssuedAt is "iat".
	IssuedAt NumericDate
	// ID is "jti": a UUID since Kubernetes 1.30.
	ID string
	// Kubernetes is "kubernetes.io"; its zero value where the claim is absent.
	Kubernetes Private
	// Legacy are the flat private claims of a token that a Secret holds and that never
	// expires; nil where the claim set has none of them.
	Legacy *LegacyPrivate
}

// SubjectPrefix begins the subject of every service-account token.
const SubjectPrefix = "system:serviceaccount:"

// MakeSubject returns the subject, which is also the username, of a service account
// (k8s.io/apiserver, authentication/serviceaccount/util.go).
func MakeSubject(namespace, name string) string {
	return SubjectPrefix + namespace + ":" + name
}

// CredentialID returns the name by which kube-apiserver knows a token in audit events
// and in a user's extra: "JTI=" and the ID. It is "" for a token without one.
func (c *Claims) CredentialID() string {
	if c.ID == "" {
		return ""
	}
	return "JTI=" + c.ID
}

// Ref names one object by name and UID. A UID of "" is left out of the claim: the
// object was not known when the token was issued.
type Ref struct {
	// Name is the object's metadata.name.
	Name string `json:"name,omitempty"`
	// UID is the object's metadata.uid.
	UID string `json:"uid,omitempty"`
}

// Private is the claim "kubernetes.io" of a bound service-account token
// (pkg/serviceaccount/claims.go in k8s.io/kubernetes 1.36).
type Private struct {
	// Namespace is the service account's namespace, and that of the pod or Secret.
	Namespace string `json:"namespace,omitempty"`
	// Node is the node that the token is bound to, or where there is a Pod the node
	// that the pod ran on; its UID is "" where that Node did not exist. Nil where
	// there is none.
	Node *Ref `json:"node,omitempty"`
	// Pod is the pod that the token is bound to; nil where it is bound to none.
	Pod *Ref `json:"pod,omitempty"`
	// Secret is the Secret that the token is bound to; nil where it is bound to none.
	Secret *Ref `json:"secret,omitempty"`
	// ServiceAccount is the account that the token speaks for. The claim is always
	// written, empty or not.
	ServiceAccount Ref `json:"serviceaccount"`
	// WarnAfter is "warnafter": the time from which on a use of the token is recorded
	// as stale. It is never a reason to refuse the token.
	WarnAfter NumericDate `json:"warnafter,omitzero"`
}

// LegacyPrivate are the private claims of a token that kube-controller-manager writes
// into a Secret of type kubernetes.io/service-account-token
// (pkg/serviceaccount/legacy.go in k8s.io/kubernetes 1.36).
type LegacyPrivate struct {
	Namespace          string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName         string `json:"kubernetes.io/serviceaccount/secret.name"`
	ServiceAccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	ServiceAccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// LegacyIssuer is the "iss" of a legacy token.
const LegacyIssuer = "kubernetes/serviceaccount"
