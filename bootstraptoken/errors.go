package bootstraptoken

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check of this package; see [refusal.Check].
type Check = refusal.Check

// The checks of texts and documents. The checks of a token Secret, of a kubeconfig, of signatures
// and of servers are declared next to the code that makes them.
const (
	// checkToken: a text is not a token, or not a part of one. The error never repeats it.
	checkToken Check = "bootstrap-token"
	// checkCA: the CA bundle does not consist of one to 64 different CA certificates in
	// PEM.
	checkCA Check = "ca-bundle"
	// checkPin: a text is not the pin of a CA, or a Pin is the zero value.
	checkPin Check = "ca-pin"
	// checkNoCA: there is no CA certificate where one is needed.
	checkNoCA Check = "no-ca"
	// checkConfigMap: an answer is not the cluster-info ConfigMap in JSON.
	checkConfigMap Check = "cluster-info-object"
	// checkLockout: the refreshed CAs do not verify the very server that sent them.
	checkLockout Check = "ca-lockout"
	// checkCache: bytes are not a [Cache] as [Cache.Marshal] writes it, or its file is one
	// that others can change.
	checkCache Check = "cache"
	// checkManifest: an [Object] has a text that cannot stand in a manifest.
	checkManifest Check = "manifest"
)

// Error is one failed check; see [refusal.Error]. Got and Want never hold a token's secret,
// nor anything that could be one by mistake, such as a whole token in place of its ID.
type Error = refusal.Error
