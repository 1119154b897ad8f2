package bootstraptoken

import (
	"bytes"
	"maps"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// Signing is what [Sign] found.
type Signing struct {
	// Data is the data that the ConfigMap must have now. The map is a new one.
	Data map[string]string
	// Changed reports whether Data is any different from what was given: write it then.
	Changed bool
	// Refused are the token Secrets that [ParseSecret] refuses, in the order in which they were
	// given. Nothing is signed with them.
	Refused []Refusal
	// Next is when the first of the signatures ends, and so when to sign again. It is the
	// zero time where none does: then a change of the Secrets or of the ConfigMap is the
	// next reason.
	Next time.Time
}

// Sign says which data the cluster-info ConfigMap must have at now: a signature by each
// Secret that has the usage signing and is not expired, and no other key that begins with
// [SignatureKeyPrefix]. Everything else in data is kept. objects may be all Secrets of the
// cluster: those that are not of [SecretType] in [Namespace] are passed over.
//
// Signatures are byte-equal to those of Kubernetes' bootstrap signer
// (pkg/controller/bootstrap/bootstrapsigner.go, signConfigMap). The same Secrets sign, but
// for those that [ParseSecret] refuses: Kubernetes signs with a secret of any form that is not
// empty, with Secrets whose groups are wrong, and with those that are being deleted. What
// it signed with such a Secret is left as long as the signature is right, so that both can
// run in one cluster: each comes to rest after one write. Only where their clocks differ do
// they contradict each other for as long, when a token ends.
//
// The kubeconfig is signed as it is: [ParseKubeconfig] says whether clients will take it.
//
// The error is [CheckNoKubeconfig] where there is nothing to sign (then Kubernetes leaves
// the ConfigMap as it is), [CheckKubeconfig] for a kubeconfig of more than
// [MaxKubeconfigSize] bytes, which no client takes, [CheckDuplicateToken], and
// [refusal.CheckConfig] if now is the zero time. Secrets of one namespace cannot be duplicates.
func Sign(data map[string]string, objects []*Object, now time.Time) (*Signing, error) {
	if now.IsZero() {
		return nil, errClock()
	}
	kubeconfig, err := kubeconfigOf(data)
	if err != nil {
		return nil, err
	}
	s := new(Signing)
	signers, err := s.signers(objects, now)
	if err != nil {
		return nil, err
	}
	payload, err := jws.NewDetached([]byte(kubeconfig)) // encoded once for all tokens
	if err != nil {
		return nil, &Error{Check: CheckKubeconfig, Err: err}
	}
	s.Data = make(map[string]string, len(data)+len(signers))
	for key, value := range data {
		if !strings.HasPrefix(key, SignatureKeyPrefix) {
			s.Data[key] = value
		}
	}
	for id, signer := range signers {
		key := SignatureKeyPrefix + id
		signature, err := payload.Sign(id, signer.key)
		if err != nil {
			return nil, &Error{Check: CheckSignature, Err: err}
		}
		if signer.refused && data[key] != signature {
			continue
		}
		s.Data[key] = signature
		if !signer.end.IsZero() && (s.Next.IsZero() || signer.end.Before(s.Next)) {
			s.Next = signer.end
		}
	}
	s.Changed = !maps.Equal(data, s.Data)
	return s, nil
}

// A signer is a Secret that signs.
type signer struct {
	key     []byte
	end     time.Time // the zero time is never
	refused bool      // it signs in Kubernetes alone
}

// signers are those that sign at now, by ID. It fills Refused.
func (s *Signing) signers(objects []*Object, now time.Time) (map[string]signer, error) {
	signers := make(map[string]signer, len(objects))
	for _, o := range objects {
		if !isTokenSecret(o) {
			continue
		}
		key, end, signs := kubernetesSigns(o, now)
		_, err := ParseSecret(o)
		if err != nil {
			s.Refused = append(s.Refused, Refusal{Name: o.Name, Err: err})
		}
		if !signs {
			continue
		}
		id, _ := idOf(o.Name)
		if other, ok := signers[id]; ok && !bytes.Equal(other.key, key) {
			return nil, &Error{Check: CheckDuplicateToken, Got: "two secrets for " + id, Want: "one"}
		}
		signers[id] = signer{key, end, err != nil}
	}
	return signers, nil
}

// kubernetesSigns reports whether Kubernetes' bootstrap signer signs with the token Secret, and if
// so with which key and until when; the zero time is never (pkg/controller/bootstrap,
// bootstrapsigner.go and util.go; k8s.io/cluster-bootstrap/util/secrets, GetExpiration).
// Beside type and namespace it looks at name, ID, a secret that is not empty, expiration and usage,
// and not at deletion, groups and the form of the secret. It reads an expiration as
// time.Parse does, and an empty one as never.
func kubernetesSigns(o *Object, now time.Time) (key []byte, end time.Time, ok bool) {
	data := o.Data.Reveal()
	id, named := idOf(o.Name)
	if !named || string(data[keyID]) != id || len(data[keySecret]) == 0 || string(data[keySigning]) != "true" {
		return nil, time.Time{}, false
	}
	if text := string(data[keyExpiration]); text != "" {
		end, _ = time.Parse(time.RFC3339, text) // the zero time, which is over, for what is no time
		if !now.Before(end) {
			return nil, time.Time{}, false
		}
	}
	return data[keySecret], end, true
}
