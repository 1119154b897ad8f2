package bootstraptoken

// What is longer, or more, is refused.
const (
	// MaxAddresses is how many API servers can be tried.
	MaxAddresses = 64
	// MaxServerSize is the length in bytes of the longest server URL or address.
	MaxServerSize = 2048
	// MaxKubeconfigSize is the size in bytes of the largest discovery document.
	MaxKubeconfigSize = 256 << 10
	// MaxConfigMapSize is the size in bytes of the largest answer of an API server: a
	// ConfigMap holds 1 MiB, and JSON escapes some of it.
	MaxConfigMapSize = 2 << 20
	// MaxSecretSize is the most bytes that the keys and values of a token Secret may have
	// together: 64 KiB. Kubernetes takes 1 MiB; what kubeadm writes is under 1 KiB.
	MaxSecretSize = 64 << 10
	// MaxManifestSize is the most bytes that [ParseManifest] reads: 1 MiB.
	MaxManifestSize = 1 << 20
	// MaxCacheSize is the size in bytes of the largest stored [Cache].
	MaxCacheSize = 512 << 10
	// MaxCAs is how many certificates a bundle may have.
	MaxCAs = 64
	// MaxCABundleSize is the size in bytes of the largest bundle, PEM.
	MaxCABundleSize = 160 << 10
)
