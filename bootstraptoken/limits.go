package bootstraptoken

// The limits of this package. Anything above them is refused.
const (
	// maxAddresses is the maximum number of API servers to try.
	maxAddresses = 64
	// maxServerSize is the maximum length in bytes of a server URL or address.
	maxServerSize = 2048
	// maxKubeconfigSize is the maximum size in bytes of a discovery document.
	maxKubeconfigSize = 256 << 10
	// maxConfigMapSize is the maximum size in bytes of an API server's answer: a ConfigMap holds
	// 1 MiB, and JSON escapes some of it.
	maxConfigMapSize = 2 << 20
	// maxSecretSize is the maximum total size in bytes of the keys and values of a token Secret:
	// 64 KiB. Kubernetes accepts 1 MiB; what kubeadm writes is under 1 KiB.
	maxSecretSize = 64 << 10
	// maxCacheSize is the maximum size in bytes of a stored [Cache].
	maxCacheSize = 512 << 10
	// maxCAs is the maximum number of certificates in a bundle.
	maxCAs = 64
	// maxCABundleSize is the maximum size in bytes of a bundle, in PEM.
	maxCABundleSize = 160 << 10
)
