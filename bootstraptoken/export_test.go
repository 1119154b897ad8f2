package bootstraptoken

// What the tests of package bootstraptoken_test name.
const (
	MaxCacheSize       = maxCacheSize
	MaxConfigMapSize   = maxConfigMapSize
	MaxKubeconfigSize  = maxKubeconfigSize
	MaxServerSize      = maxServerSize
	SignatureKeyPrefix = signatureKeyPrefix
)
