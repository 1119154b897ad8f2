package bootstraptoken

import (
	"crypto/subtle"
	"strconv"
	"strings"
	"time"
)

// What Kubernetes 1.36 makes of a token Secret, wherever that is less strict than the
// functions without Insecure in their name: to compare the two, and to tell an
// administrator what a cluster does with a Secret that is refused here.

// InsecureKubernetesUser says who kube-apiserver takes the bearer of a token for, if the
// Secret that it finds under the token's name is o (nil: it finds none). The checks are
// those of plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go, in its order:
// CheckToken, CheckNamespace and CheckName (o is another Secret), CheckDeleted, CheckType,
// CheckCredential, CheckID, CheckExpired (an unreadable expiration too), CheckUsage and
// CheckGroups. [Authenticate] refuses all that this refuses, and more.
func InsecureKubernetesUser(o *Object, bearer string, now time.Time) (*User, error) {
	token, err := Parse(bearer)
	if err != nil {
		return nil, err
	}
	switch {
	case o == nil || o.Name != SecretName(token.ID()):
		return nil, &Error{Check: CheckName, Got: "another Secret or none", Want: SecretName(token.ID())}
	case o.Namespace != Namespace:
		return nil, &Error{Check: CheckNamespace, Got: describe([]byte(o.Namespace)), Want: strconv.Quote(Namespace)}
	case o.Deleted != nil:
		return nil, &Error{Check: CheckDeleted, Got: "a deleted Secret", Want: "one that is not"}
	case o.Type != SecretType || o.Data == nil:
		return nil, &Error{Check: CheckType, Got: describe([]byte(o.Type)), Want: strconv.Quote(SecretType)}
	case subtle.ConstantTimeCompare(o.Data[keySecret], token.key()) != 1:
		return nil, &Error{Check: CheckCredential, Got: "another secret", Want: "the token's"}
	case string(o.Data[keyID]) != token.ID():
		return nil, &Error{Check: CheckID, Got: describe(o.Data[keyID]), Want: strconv.Quote(token.ID())}
	case InsecureKubernetesExpired(o, now):
		return nil, &Error{Check: CheckExpired, Got: now.UTC().Format(time.RFC3339Nano), Want: "a time before " + describe(o.Data[keyExpiration])}
	case string(o.Data[keyAuthentication]) != "true":
		return nil, &Error{Check: CheckUsage, Got: describe(o.Data[keyAuthentication]), Want: keyAuthentication + `: "true"`}
	}
	groups, err := decodeGroups(o.Data)
	if err != nil {
		return nil, err
	}
	return newUser(token.ID(), groups), nil
}

// InsecureKubernetesSigns reports whether Kubernetes' bootstrap signer signs with the
// Secret o (pkg/controller/bootstrap, bootstrapsigner.go and util.go): namespace, type,
// name, ID, a secret that is not empty, expiration and usage are looked at, deletion,
// groups and the form of the secret are not. [DecodeFor] with signing wanted refuses all
// that this refuses, and more.
func InsecureKubernetesSigns(o *Object, now time.Time) bool {
	if o == nil || o.Namespace != Namespace || o.Type != SecretType {
		return false
	}
	id, ok := strings.CutPrefix(o.Name, SecretNamePrefix)
	return ok && isID(id) && string(o.Data[keyID]) == id && len(o.Data[keySecret]) > 0 &&
		!InsecureKubernetesExpired(o, now) && string(o.Data[keySigning]) == "true"
}

// InsecureKubernetesExpired reports whether Kubernetes takes the Secret for expired, and
// so whether its token cleaner deletes it (k8s.io/cluster-bootstrap/util/secrets,
// GetExpiration): a time that cannot be read is expired, and an empty one never is. No
// Secret at all is expired.
func InsecureKubernetesExpired(o *Object, now time.Time) bool {
	if o == nil {
		return true
	}
	text := string(o.Data[keyExpiration])
	if text == "" {
		return false
	}
	end, err := time.Parse(time.RFC3339, text)
	return err != nil || !now.Before(end)
}
