package bootstraptoken

// The limits of this package. Anything above them is refused.
const (
	// MaxAddresses is the maximum number of API servers to try.
	MaxAddresses = 64
	// MaxServerSize is the maximum length in bytes of a server URL or address.
	MaxServerSize = 2048
	// MaxKubeconfigSize is the maximum size in bytes of a discovery document.
	MaxKubeconfigSize = 256 << 10
	// MaxConfigMapSize is the maximum size in bytes of an API server's answer: a ConfigMap holds
	// 1 MiB, and JSON escapes some of it.
	MaxConfigMapSize = 2 << 20
	// MaxSecretSize is the maximum total size in bytes of the keys and values of a token Secret:
	// 64 KiB. Kubernetes accepts 1 MiB; what kubeadm writes is under 1 KiB.
	MaxSecretSize = 64 << 10
	// MaxManifestSize is the maximum number of bytes that [ParseManifest] reads: 1 MiB.
	MaxManifestSize = 1 << 20
	// MaxCacheSize is the maximum size in bytes of a stored [Cache].
	MaxCacheSize = 512 << 10
	// MaxCAs is the maximum number of certificates in a bundle.
	MaxCAs = 64
	// MaxCABundleSize is the maximum size in bytes of a bundle, in PEM.
	MaxCABundleSize = 160 << 10
)
