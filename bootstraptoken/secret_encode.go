package bootstraptoken

import (
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/secret"
)

// MaxSecretSize is the most bytes that the keys and values of a token Secret may have
// together: 64 KiB. Kubernetes takes 1 MiB; what kubeadm writes is under 1 KiB.
const MaxSecretSize = 64 << 10

// Encode makes the object that kubeadm would: in [Namespace], with UTC seconds as its
// expiration and no key for what is not set. A fraction of a second in Expiration is
// cut off, so a token never lives longer than it was told to. The errors are those of
// [Decode] for the same faults, so that what is encoded can be decoded, and gives s back.
func (s *Secret) Encode() (*Object, error) {
	if s.Token.IsZero() {
		return nil, &Error{Check: CheckToken, Want: wantToken}
	}
	data := map[string][]byte{keyID: []byte(s.Token.ID()), keySecret: s.Token.key()}
	if s.Description != "" {
		if err := checkDescription(s.Description); err != nil {
			return nil, err
		}
		data[keyDescription] = []byte(s.Description)
	}
	if !s.Expiration.IsZero() {
		end := s.Expiration.UTC().Truncate(time.Second)
		if end.IsZero() || end.Year() < 0 || end.Year() > 9999 {
			return nil, &Error{Check: CheckExpiration, Got: "the year " + strconv.Itoa(end.Year()), Want: wantTime}
		}
		data[keyExpiration] = []byte(end.Format(time.RFC3339))
	}
	if s.Usages.Signing {
		data[keySigning] = []byte("true")
	}
	if s.Usages.Authentication {
		data[keyAuthentication] = []byte("true")
	}
	if len(s.Groups) > 0 {
		if err := checkGroups(s.Groups); err != nil {
			return nil, err
		}
		data[keyGroups] = []byte(strings.Join(s.Groups, ","))
	}
	if err := checkSize(data); err != nil {
		return nil, err
	}
	return &Object{Namespace: Namespace, Name: SecretName(s.Token.ID()), Type: SecretType, Data: secret.New(data)}, nil
}
