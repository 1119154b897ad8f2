// Package externalsigner runs kube-apiserver with an external signer of service-account tokens
// (--service-account-signing-endpoint): the program of module externalsigner, and others over its packages.
package externalsigner
