package bootstraptoken

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check of this package; see [refusal.Check].
type Check = refusal.Check

// ErrRetry means that a question could not be answered now, neither yes nor no: the caller
// should ask again later. It is never a refusal.
const ErrRetry = refusal.ErrRetry

// The checks of texts and documents. Those of a token Secret, of a kubeconfig, of signatures
// and of servers are declared next to what they check.
const (
	// CheckToken: a text is not a token, or not a part of one. The error never repeats it.
	CheckToken Check = "token"
	// CheckCA: the CA bundle does not consist of one to [MaxCAs] different CA certificates in
	// PEM.
	CheckCA Check = "ca-bundle"
	// CheckPin: a text is not the pin of a CA, or a Pin is the zero value.
	CheckPin Check = "ca-pin"
	// CheckNoCA: there is no CA certificate where one is needed.
	CheckNoCA Check = "no-ca"
	// CheckConfigMap: an answer is not the cluster-info ConfigMap in JSON.
	CheckConfigMap Check = "cluster-info-object"
	// CheckLockout: the refreshed CAs do not verify the very server that sent them.
	CheckLockout Check = "ca-lockout"
	// CheckCache: bytes are not a [Cache] as [Cache.Marshal] writes it, or its file is one
	// that others can change.
	CheckCache Check = "cache"
	// CheckManifest: a text is not the manifest of one Secret. The error gives the position, but
	// never a value of the Secret's data.
	CheckManifest Check = "manifest"
)

// Error is one failed check; see [refusal.Error]. Got and Want never hold a token's secret,
// nor anything that could be one by mistake, such as a whole token in place of its ID.
type Error = refusal.Error
