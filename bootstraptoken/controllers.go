package bootstraptoken

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// MaxSweepWait is the longest time after which [Sweep] wants to be asked again while any
// token can expire: one hour. A clock that is set, or a machine that slept, is noticed so.
const MaxSweepWait = time.Hour

// Sweeping is what [Sweep] found.
type Sweeping struct {
	// Delete are the Secrets to delete now, in the order in which they were given. Delete
	// each under the preconditions UID and ResourceVersion, where they are not empty: a
	// Secret that was made again under its name, or given more time, meanwhile stays.
	Delete []*Object
	// Refused are the token Secrets of which nobody can say whether they have expired.
	// They stay, and want a person's eye.
	Refused []Refusal
	// Next is when to look again: when the first of the remaining tokens expires, but
	// at most MaxSweepWait from now. It is the zero time where none ever expires: then a
	// change of the Secrets is the next reason to look.
	Next time.Time
}

// Sweep says which token Secrets have expired at now, and when to look again. objects may
// be all Secrets of the cluster: those that are not of [SecretType] in [Namespace], and
// those that are being deleted, are passed over. Nothing else is asked of a Secret but a
// readable expiration: an expired one with a wrong name or bad groups goes too, as with
// Kubernetes' token cleaner (pkg/controller/bootstrap/tokencleaner.go, evalSecret).
//
// Two things differ from it. A Secret with an expiration that is not a time of RFC 3339 is
// reported in Refused with [CheckExpiration], where the token cleaner deletes it in
// silence. And what could not be deleted is named again by the next Sweep, so a caller
// whose deletions fail asks again soon; the token cleaner waits for the Secret to change.
//
// The error is [refusal.CheckConfig] if now is the zero time. A clock that runs ahead deletes
// tokens early: nothing here can tell.
func Sweep(objects []*Object, now time.Time) (*Sweeping, error) {
	if now.IsZero() {
		return nil, errClock()
	}
	found := new(Sweeping)
	for _, o := range objects {
		if !isTokenSecret(o) || o.Deleted != nil {
			continue
		}
		end, err := decodeExpiration(o.Data.Reveal())
		switch {
		case err != nil:
			found.Refused = append(found.Refused, Refusal{Name: o.Name, Err: err})
		case end.IsZero():
		case !now.Before(end):
			found.Delete = append(found.Delete, o)
		case found.Next.IsZero() || end.Before(found.Next):
			found.Next = end
		}
	}
	if most := now.Add(MaxSweepWait); found.Next.After(most) {
		found.Next = most
	}
	return found, nil
}

// List decodes the token Secrets among objects, in their order, for a view. objects may be
// all Secrets of the cluster: those that are not of [SecretType] in [Namespace] are passed
// over. Those that [ParseSecret] refuses are in refused, with the reason. An expired token is
// listed like another. (kubeadm token list shows tokens that kube-apiserver refuses, and
// usages that no component knows.)
func List(objects []*Object) (secrets []*Secret, refused []Refusal) {
	for _, o := range objects {
		if !isTokenSecret(o) {
			continue
		}
		s, err := ParseSecret(o)
		if err != nil {
			refused = append(refused, Refusal{Name: o.Name, Err: err})
			continue
		}
		secrets = append(secrets, s)
	}
	return secrets, refused
}

func isTokenSecret(o *Object) bool {
	return o != nil && o.Namespace == Namespace && o.Type == SecretType
}

// Refusal is an object that was not taken, and why.
type Refusal struct {
	// Name is the object's name.
	Name string
	// Err is an [*Error].
	Err error
}

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

// SecretGetter returns the Secret of this namespace and name, from the API or from a cache
// of it. Where there is none its error is [ErrNotFound], wrapped or bare; any other error
// says that it could not look.
type SecretGetter func(ctx context.Context, namespace, name string) (*Object, error)

const (
	// ErrNotFound is the error of a [SecretGetter] that looked and found no such Secret.
	ErrNotFound Check = "not found"
	// CheckCredential: no token Secret has this ID and this secret. Which of the two it
	// was is told to nobody.
	CheckCredential Check = "credential"
)

// Authenticate says who the bearer of a token is, as kube-apiserver does
// (plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go, AuthenticateToken): the user
// system:bootstrap:<id> in the group system:bootstrappers and the token's extra groups.
//
// It refuses with
//   - [CheckToken] what has not the form of a bootstrap token: another authenticator may
//     know it;
//   - [CheckCredential] an unknown ID and a wrong secret, with the same error and, but for
//     what get itself takes, in the same time;
//   - the checks of [ParseSecretFor], for authentication at now, in the same order, the Secret
//     of a bearer that knows the secret. Kubernetes looks at the deletion and the type
//     before the secret, and so would tell them to anybody;
//   - [refusal.CheckConfig] a nil get and the zero time.
//
// An error of get other than [ErrNotFound], and an answer that is not the Secret that was
// asked for, is [ErrRetry]: nothing is known about the bearer.
func Authenticate(ctx context.Context, bearer string, get SecretGetter, now time.Time) (*User, error) {
	if get == nil {
		return nil, refusal.Config("get", "", "a SecretGetter")
	}
	if now.IsZero() {
		return nil, errClock()
	}
	token, err := Parse(bearer)
	if err != nil {
		return nil, err
	}
	name := SecretName(token.ID())
	o, err := get(ctx, Namespace, name)
	switch {
	case errors.Is(err, ErrNotFound):
		o = new(Object)
	case err != nil:
		return nil, refusal.Retry(err)
	case o == nil:
		return nil, refusal.Retry(errors.New("the getter returned neither a Secret nor an error"))
	case o.Namespace != Namespace || o.Name != name:
		return nil, refusal.Retry(errors.New("the getter returned " + o.String() + " for " + strconv.Quote(name)))
	}
	if !holdsSecret(o.Data.Reveal(), token) {
		return nil, &Error{Check: CheckCredential, Got: "a token that is not known", Want: "the ID and the secret of a token Secret"}
	}
	s, err := ParseSecretFor(o, Usages{Authentication: true}, now)
	if err != nil {
		return nil, err
	}
	return s.User(), nil
}

// holdsSecret compares in a time that does not depend on what d holds. A stored value of
// another length is compared as sixteen zero bytes, which are no token's secret.
func holdsSecret(d map[string][]byte, t Token) bool {
	var stored [SecretSize]byte
	if value := d[keySecret]; len(value) == SecretSize {
		copy(stored[:], value)
	}
	return subtle.ConstantTimeCompare(stored[:], t.key()) == 1
}
