// Package externalsigner runs kube-apiserver with an external signer of service-account tokens
// (--service-account-signing-endpoint): module externalsigner, and what is built with it.
package externalsigner
