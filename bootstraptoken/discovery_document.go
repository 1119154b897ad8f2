package bootstraptoken

import (
	"strconv"

	"github.com/nodeattest/nodeattest/jws"
)

// The ConfigMap that makes a cluster known to whoever asks (Kubernetes bootstrap
// discovery, "cluster-info ConfigMap"; k8s.io/cluster-bootstrap/token/api, types.go).
const (
	// ClusterInfoNamespace and ClusterInfoName say where it is.
	ClusterInfoNamespace = "kube-public"
	ClusterInfoName      = "cluster-info"
	// KubeconfigKey is the key of its data that holds the kubeconfig.
	KubeconfigKey = "kubeconfig"
	// SignatureKeyPrefix and a token's ID are the key of the kubeconfig's signature by
	// that token.
	SignatureKeyPrefix = "jws-kubeconfig-"
)

// The reasons for which the data of a cluster-info ConfigMap is not signed, or not
// trusted.
const (
	// CheckNoKubeconfig: there is no kubeconfig, or it is empty.
	CheckNoKubeconfig Check = "cluster-info-kubeconfig"
	// CheckNoSignature: there is no signature by the token. The bootstrap signer adds
	// it a moment after the token is made, so that [Discover] waits for it.
	CheckNoSignature Check = "cluster-info-no-signature"
	// CheckSignature: the signature is not the token's over this kubeconfig.
	CheckSignature Check = "cluster-info-signature"
	// CheckDuplicateToken: two different tokens have one ID.
	CheckDuplicateToken Check = "duplicate-token"
)

// NewClusterInfoData returns the data of a new cluster-info ConfigMap, not yet signed.
// Errors are those of [ClusterInfo.Marshal].
func NewClusterInfoData(info *ClusterInfo) (map[string]string, error) {
	kubeconfig, err := info.Marshal()
	if err != nil {
		return nil, err
	}
	return map[string]string{KubeconfigKey: string(kubeconfig)}, nil
}

// Verify checks that the kubeconfig in the data of a cluster-info ConfigMap is signed by
// a token, and reads it, in kubeadm's order (cmd/kubeadm/app/discovery/token/token.go).
// Who has the token can sign: a CA in it is to be held against a pin too, as [Discover]
// does. A nil error says nothing about whether the token is still valid.
//
// The errors are [CheckToken] for the zero Token, [CheckNoKubeconfig],
// [CheckNoSignature], [CheckSignature], and those of [ParseKubeconfig].
func Verify(data map[string]string, token Token) (*ClusterInfo, error) {
	kubeconfig, err := signedKubeconfig(data, token)
	if err != nil {
		return nil, err
	}
	return ParseKubeconfig([]byte(kubeconfig))
}

// signedKubeconfig returns the kubeconfig if the token signed it.
func signedKubeconfig(data map[string]string, token Token) (string, error) {
	if token.IsZero() {
		return "", &Error{Check: CheckToken, Got: token.String(), Want: wantToken}
	}
	kubeconfig, err := kubeconfigOf(data)
	if err != nil {
		return "", err
	}
	signature := data[SignatureKeyPrefix+token.ID()]
	if signature == "" {
		return "", &Error{Check: CheckNoSignature, Want: SignatureKeyPrefix + token.ID()}
	}
	if err := jws.VerifyDetached(signature, []byte(kubeconfig), token.ID(), token.key()); err != nil {
		return "", &Error{Check: CheckSignature, Err: err}
	}
	return kubeconfig, nil
}

func kubeconfigOf(data map[string]string) (string, error) {
	kubeconfig := data[KubeconfigKey]
	switch {
	case kubeconfig == "":
		return "", &Error{Check: CheckNoKubeconfig, Want: "the key " + KubeconfigKey}
	case len(kubeconfig) > MaxKubeconfigSize:
		return "", errKubeconfigSize(len(kubeconfig))
	}
	return kubeconfig, nil
}

func errKubeconfigSize(got int) error {
	return &Error{Check: CheckKubeconfig, Got: strconv.Itoa(got) + " bytes", Want: "1 to " + strconv.Itoa(MaxKubeconfigSize)}
}
