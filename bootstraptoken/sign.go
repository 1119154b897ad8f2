package bootstraptoken

import (
	"bytes"
	"maps"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// Signing is the result of [Sign].
type Signing struct {
	// Data is the data that the ConfigMap must have now. It is a new map.
	Data map[string]string
	// Changed reports whether Data differs from the given data: if so, write it.
	Changed bool
	// Refused lists the token Secrets that [ParseSecretUnchecked] refuses, in the order in
	// which they were given. Nothing is signed with them.
	Refused []Refusal
	// Next is when the first of the signatures ends, and so when to sign again. It is the zero
	// time if none does: then a change to the Secrets or the ConfigMap is the next reason.
	Next time.Time
}

// Sign says what data the cluster-info ConfigMap must have at now: a signature by each Secret
// that has the usage signing and is not expired, and no other key that begins with
// "jws-kubeconfig-". Everything else in data is kept. objects may be all Secrets of the
// cluster: Secrets of another type or namespace than [SecretType] and [Namespace] are skipped.
//
// Signatures are byte for byte the same as from Kubernetes' bootstrap signer
// (pkg/controller/bootstrap/bootstrapsigner.go, signConfigMap). The same Secrets sign, except
// Secrets that [ParseSecretUnchecked] refuses: Kubernetes signs with any nonempty secret, with
// wrong groups, and during deletion. A signature that it
// made with such a Secret is left alone as long as it is correct, so that both can run in one
// cluster: each settles after one write. They contradict each other only if their clocks
// differ, and only for that long, when a token expires. A signature with a secret that is not of
// a token's form and shorter than 32 bytes is left alone as it is: package jws takes no such key,
// nor does a client.
//
// The kubeconfig is signed as it is: [ParseKubeconfig] says whether clients will accept it.
//
// The error is "cluster-info-kubeconfig" if there is nothing to sign (Kubernetes then leaves the
// ConfigMap as it is), "kubeconfig" for a kubeconfig of more than 262,144
// bytes, which no client accepts, "duplicate-token", and [refusal.CheckConfig] if now is
// the zero time. Secrets of one namespace cannot be duplicates.
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
		return nil, &Error{Check: checkKubeconfig, Err: err}
	}
	s.Data = make(map[string]string, len(data)+len(signers))
	maps.Copy(s.Data, data)
	maps.DeleteFunc(s.Data, func(key, _ string) bool { return strings.HasPrefix(key, SignatureKeyPrefix) })
	for id, signer := range signers {
		key := SignatureKeyPrefix + id
		signature, err := payload.Sign(id, signer.key)
		if signer.refused {
			stored, ok := data[key]
			if !ok || err == nil && stored != signature {
				continue
			}
			signature, err = stored, nil
		}
		if err != nil {
			return nil, &Error{Check: CheckSignature, Err: err}
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
	end     time.Time // the zero time means never
	refused bool      // only Kubernetes signs with it
}

// signers returns the Secrets that sign at now, by ID. It also fills in Refused.
func (s *Signing) signers(objects []*Object, now time.Time) (map[string]signer, error) {
	signers := make(map[string]signer, len(objects))
	for _, o := range objects {
		if !isTokenSecret(o) {
			continue
		}
		key, end, signs := kubernetesSigns(o, now)
		_, err := ParseSecretUnchecked(o)
		if err != nil {
			s.Refused = append(s.Refused, Refusal{Name: o.Name, Err: err})
		}
		if !signs {
			continue
		}
		id, _ := idOf(o.Name)
		if other, ok := signers[id]; ok && !bytes.Equal(other.key, key) {
			return nil, &Error{Check: checkDuplicateToken, Got: "two secrets for " + id, Want: "one"}
		}
		signers[id] = signer{key, end, err != nil}
	}
	return signers, nil
}

// kubernetesSigns reports whether Kubernetes' bootstrap signer signs with the token Secret,
// and if so with which key and until when, where zero means never (pkg/controller/bootstrap,
// bootstrapsigner.go and util.go; k8s.io/cluster-bootstrap/util/secrets, GetExpiration).
// In addition to type and namespace it checks the name, the ID, that the secret is not empty, the
// expiration and the usage, but not deletion, the groups or the form of the secret. It reads
// an expiration as time.Parse does, and an empty one as never.
func kubernetesSigns(o *Object, now time.Time) (key []byte, end time.Time, ok bool) {
	data := o.Data.Reveal()
	id, named := idOf(o.Name)
	if !named || string(data[keyID]) != id || len(data[keySecret]) == 0 || string(data[keySigning]) != "true" {
		return nil, time.Time{}, false
	}
	if text := string(data[keyExpiration]); text != "" {
		end, _ = time.Parse(time.RFC3339, text) // the zero time, which has passed, if it is not a time
		if !now.Before(end) {
			return nil, time.Time{}, false
		}
	}
	return data[keySecret], end, true
}
