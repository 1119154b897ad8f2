package bootstraptoken

// The names that tests of package bootstraptoken_test use.
const (
	MaxCacheSize      = maxCacheSize
	MaxConfigMapSize  = maxConfigMapSize
	MaxKubeconfigSize = maxKubeconfigSize
	MaxServerSize     = maxServerSize
)
