package claims

// Ref names one object by name and UID. A UID of "" is left out of the claim: the
// object was not known when the token was issued.
type Ref struct {
	// Name is the object's metadata.name.
	Name string
	// UID is the object's metadata.uid.
	UID string
}

// Private is the claim "kubernetes.io" of a bound service-account token
// (pkg/serviceaccount/claims.go in k8s.io/kubernetes 1.36).
type Private struct {
	// Namespace is the service account's namespace, and that of the pod or Secret.
	Namespace string
	// ServiceAccount is the account that the token speaks for. The claim is always
	// written, empty or not.
	ServiceAccount Ref
	// Pod is the pod that the token is bound to; nil where it is bound to none.
	Pod *Ref
	// Secret is the Secret that the token is bound to; nil where it is bound to none.
	Secret *Ref
	// Node is the node that the token is bound to, or where there is a Pod the node
	// that the pod ran on; its UID is "" where that Node did not exist. Nil where
	// there is none.
	Node *Ref
	// WarnAfter is "warnafter": the time from which on a use of the token is recorded
	// as stale. It is never a reason to refuse the token.
	WarnAfter NumericDate
}

// LegacyPrivate are the private claims of a token that kube-controller-manager writes
// into a Secret of type kubernetes.io/service-account-token
// (pkg/serviceaccount/legacy.go in k8s.io/kubernetes 1.36).
type LegacyPrivate struct {
	// Namespace is "kubernetes.io/serviceaccount/namespace".
	Namespace string
	// ServiceAccountName is "kubernetes.io/serviceaccount/service-account.name".
	ServiceAccountName string
	// ServiceAccountUID is "kubernetes.io/serviceaccount/service-account.uid".
	ServiceAccountUID string
	// SecretName is "kubernetes.io/serviceaccount/secret.name".
	SecretName string
}

// LegacyIssuer is the "iss" of a legacy token.
const LegacyIssuer = "kubernetes/serviceaccount"
