package bootstraptoken

import (
	"strconv"
	"strings"
	"time"

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

// Sign returns the data of the cluster-info ConfigMap with the signatures that it must
// have now, and whether that is any different: one by each Secret that has the usage
// signing and is not expired at now, and no other key that begins with
// [SignatureKeyPrefix]. Everything else in data is kept. data itself is not changed.
//
// Signatures are byte-equal to those of Kubernetes' bootstrap signer
// (pkg/controller/bootstrap/bootstrapsigner.go, signConfigMap). The same Secrets sign,
// but for those that [Decode] refuses: Kubernetes signs with a secret of any form that is
// not empty, with Secrets whose groups are wrong, and with those that are being deleted.
// The kubeconfig is signed as it is: [ParseKubeconfig] says whether clients will take it.
//
// The error is [CheckNoKubeconfig] where there is nothing to sign (then Kubernetes leaves
// the ConfigMap as it is), [CheckKubeconfig] for a kubeconfig of more than
// [MaxKubeconfigSize] bytes, which no client takes, [CheckToken] for a Secret that is nil
// or has no token, [CheckDuplicateToken], and [CheckClock] if now is the zero time. Secrets of one
// namespace cannot be duplicates.
func Sign(data map[string]string, secrets []*Secret, now time.Time) (signed map[string]string, changed bool, err error) {
	if now.IsZero() {
		return nil, false, errClock()
	}
	kubeconfig, err := kubeconfigOf(data)
	if err != nil {
		return nil, false, err
	}
	tokens, err := signingTokens(secrets, now)
	if err != nil {
		return nil, false, err
	}
	payload, err := jws.NewDetached([]byte(kubeconfig)) // encoded once for all tokens
	if err != nil {
		return nil, false, &Error{Check: CheckKubeconfig, Err: err}
	}
	signed = make(map[string]string, len(data)+len(tokens))
	for key, value := range data {
		if id, ok := strings.CutPrefix(key, SignatureKeyPrefix); ok {
			if _, signs := tokens[id]; !signs {
				changed = true
				continue
			}
		}
		signed[key] = value
	}
	for id, token := range tokens {
		signature, err := payload.Sign(id, token.key())
		if err != nil {
			return nil, false, &Error{Check: CheckSignature, Err: err}
		}
		if old, ok := signed[SignatureKeyPrefix+id]; !ok || old != signature {
			signed[SignatureKeyPrefix+id] = signature
			changed = true
		}
	}
	return signed, changed, nil
}

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

// signingTokens are the tokens, by ID, that sign at now.
func signingTokens(secrets []*Secret, now time.Time) (map[string]Token, error) {
	tokens := make(map[string]Token, len(secrets))
	for _, s := range secrets {
		if s == nil || s.Token.IsZero() {
			return nil, &Error{Check: CheckToken, Got: "no token", Want: wantToken}
		}
		if !s.Usages.Signing || s.Expired(now) {
			continue
		}
		if other, ok := tokens[s.Token.ID()]; ok && !other.Equal(s.Token) {
			return nil, &Error{Check: CheckDuplicateToken, Got: "two secrets for " + s.Token.ID(), Want: "one"}
		}
		tokens[s.Token.ID()] = s.Token
	}
	return tokens, nil
}
