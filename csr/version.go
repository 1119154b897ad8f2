package csr

import (
	"crypto"
	"encoding/pem"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxVersionDigits is how many digits the longest version number has.
const maxVersionDigits = 9

// ProviderVersion splits the Provider of a bundle, such as "tpm/v1", in the provider's
// name and the version of its data format. The error is a [*Error] with
// [CheckProvider].
func ProviderVersion(provider string) (name string, version int, err error) {
	name, digits, _ := strings.Cut(provider, "/v")
	if !nodename.ValidLabel(name) || digits == "" || len(digits) > maxVersionDigits || digits[0] == '0' ||
		strings.Trim(digits, "0123456789") != "" {
		return "", 0, &Error{Check: CheckProvider, Got: refusal.Quote(provider), Want: `a name and version such as "tpm/v1"`}
	}
	version, err = strconv.Atoi(digits)
	return name, version, err
}

// Keys of the annotations that the control plane writes on a request. It never reads one:
// a requester can set it to anything.
const (
	// AnnotationVersions lists, on a request that was refused for its version, those
	// that the control plane reads (Cluster API kubelet authentication, "Version Skew
	// Strategy", which names no key). The value is a list of names as in
	// [Bundle.Provider], the newest first, with a comma between two: "tpm/v2,tpm/v1".
	// It is for the node.
	AnnotationVersions = "cluster.x-k8s.io/kubelet-authenticator-attestation-versions"
	// AnnotationEndorsementKey is the endorsement key that the platform names for the
	// machine (Cluster API kubelet authentication, "TPM based providers"). It is for
	// people.
	AnnotationEndorsementKey = "cluster-x-k8s-io/tpm-endorsement-key"
)

// maxVersionsSize bounds the annotation's value, in bytes, and so the number of
// versions in it.
const maxVersionsSize = 1024

// UnsupportedVersionError says which version a node used, and which it could use.
type UnsupportedVersionError struct {
	// Got is what the request carries, such as "tpm/v1".
	Got string
	// Supported are the versions that the provider accepts, the newest first.
	Supported []string
}

// Error names both.
func (e *UnsupportedVersionError) Error() string {
	return "csr: the versions that are read are " + strings.Join(e.Supported, ", ")
}

// Annotation is the annotation that the control plane puts on the request, so that
// the node can file another one in a version that both know.
func (e *UnsupportedVersionError) Annotation() (key, value string) {
	return AnnotationVersions, strings.Join(e.Supported, ",")
}

// ChooseVersion is the node's side of the negotiation: from the annotations of its
// refused request it takes the newest version that it speaks itself. speaks are the
// versions that the node writes and considers safe, such as "tpm/v2": an annotation,
// which others may have written, can choose among these and add none. The error is a
// [*Error] of [CheckProviderVersion]: no annotation, one that is no list of
// versions, or nothing in common.
func ChooseVersion(annotations map[string]string, speaks []string) (string, error) {
	refuse := func(got, want string) (string, error) {
		return "", &Error{Check: CheckProviderVersion, Got: got, Want: want}
	}
	value := annotations[AnnotationVersions]
	if len(value) > maxVersionsSize {
		return refuse("a list of "+strconv.Itoa(len(value))+" bytes", "at most "+strconv.Itoa(maxVersionsSize))
	}
	offered := map[string]bool{}
	for name := range strings.SplitSeq(value, ",") {
		if _, _, err := ProviderVersion(name); err != nil {
			return refuse(refusal.Quote(value), "names such as tpm/v1 with a comma between two")
		}
		offered[name] = true
	}
	best, newest := "", 0
	for _, name := range speaks {
		_, version, err := ProviderVersion(name)
		if err == nil && offered[name] && version > newest {
			best, newest = name, version
		}
	}
	if best == "" {
		return refuse(refusal.Quote(value), strings.Join(speaks, " or "))
	}
	return best, nil
}

// EndorsementKeyAnnotation returns the annotation for an endorsement key that the
// caller got from the platform or verified itself: the key as PEM of type PUBLIC KEY
// (RFC 7468, 13), in the canonical form of [CanonicalSPKI], whose errors it returns.
func EndorsementKeyAnnotation(key crypto.PublicKey) (name, value string, err error) {
	spki, err := CanonicalSPKI(key)
	if err != nil {
		return "", "", err
	}
	return AnnotationEndorsementKey, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})), nil
}
