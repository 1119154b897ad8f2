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

// maxSweepWait is the longest time after which [Sweep] wants to be called again while any
// token can expire: one hour. That way, a clock that was set or a machine that slept is
// noticed.
const maxSweepWait = time.Hour

// Sweeping is what [Sweep] found.
type Sweeping struct {
	// Delete lists the Secrets to delete now, in the order in which they were given. Delete each
	// with the preconditions UID and ResourceVersion, if they are not empty, so that a Secret
	// that has meanwhile been recreated under its name, or given more time, stays.
	Delete []*Object
	// Refused lists the token Secrets for which it cannot be told whether they have expired. They
	// stay, and need a person's attention.
	Refused []Refusal
	// Next is when to look again: when the first of the remaining tokens expires, but at most
	// maxSweepWait from now. It is the zero time if none ever expires: then a change to the
	// Secrets is the next reason to look.
	Next time.Time
}

// Sweep says which token Secrets have expired at now, and when to look again. objects may be
// all Secrets of the cluster: those that are not of [SecretType] in [Namespace], and those
// that are being deleted, are skipped. A Secret needs nothing more than a readable expiration:
// an expired one with a wrong name or bad groups goes too, as with Kubernetes' token cleaner
// (pkg/controller/bootstrap/tokencleaner.go, evalSecret).
//
// Sweep differs from it in two ways. A Secret whose expiration is not an RFC 3339 time is
// reported in Refused with "bootstrap-token-expiration", whereas the token cleaner silently deletes it.
// And a Secret that could not be deleted is named again by the next Sweep, so a caller whose
// deletions fail should call again soon; the token cleaner waits for the Secret to change.
//
// The error is [refusal.CheckConfig] if now is the zero time. A clock that is ahead deletes
// tokens early: nothing here can detect that.
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
	if most := now.Add(maxSweepWait); found.Next.After(most) {
		found.Next = most
	}
	return found, nil
}

// List decodes the token Secrets among objects, in order, for a view. objects may be all
// Secrets of the cluster: those that are not of [SecretType] in [Namespace] are skipped. Those
// that [ParseSecretUnchecked] refuses are in refused, with the reason. An expired token is listed like
// any other. (kubeadm token list shows tokens that kube-apiserver refuses, and usages that no
// component knows.)
func List(objects []*Object) (secrets []*Secret, refused []Refusal) {
	for _, o := range objects {
		if !isTokenSecret(o) {
			continue
		}
		s, err := ParseSecretUnchecked(o)
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

// Refusal is an object that was refused, and why.
type Refusal struct {
	// Name is the object's name.
	Name string
	// Err is an [*Error].
	Err error
}

// Signing is what [Sign] found.
type Signing struct {
	// Data is the data that the ConfigMap must have now. It is a new map.
	Data map[string]string
	// Changed reports whether Data differs from what was given: if so, write it.
	Changed bool
	// Refused lists the token Secrets that [ParseSecretUnchecked] refuses, in the order in which they were
	// given. Nothing is signed with them.
	Refused []Refusal
	// Next is when the first of the signatures ends, and so when to sign again. It is the zero
	// time if none does: then a change to the Secrets or the ConfigMap is the next reason.
	Next time.Time
}

// Sign says what data the cluster-info ConfigMap must have at now: a signature by each Secret
// that has the usage signing and is not expired, and no other key that begins with
// "jws-kubeconfig-". Everything else in data is kept. objects may be all Secrets of the
// cluster: those that are not of [SecretType] in [Namespace] are skipped.
//
// Signatures are byte for byte those of Kubernetes' bootstrap signer
// (pkg/controller/bootstrap/bootstrapsigner.go, signConfigMap). The same Secrets sign, except
// those that [ParseSecretUnchecked] refuses: Kubernetes signs with any nonempty secret, with Secrets
// whose groups are wrong, and with those that are being deleted. A signature that it made with
// such a Secret is left alone as long as it is correct, so that both can run in one cluster:
// each settles after one write. They contradict each other only if their clocks differ, and
// only for that long, when a token expires.
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
	for key, value := range data {
		if !strings.HasPrefix(key, signatureKeyPrefix) {
			s.Data[key] = value
		}
	}
	for id, signer := range signers {
		key := signatureKeyPrefix + id
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
	end     time.Time // the zero time means never
	refused bool      // only Kubernetes signs with it
}

// signers returns those that sign at now, by ID. It also fills in Refused.
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
// Besides type and namespace it checks the name, the ID, that the secret is not empty, the
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

// SecretGetter returns the Secret with this namespace and name, from the API or from a cache
// of it. If there is none, its error is [ErrNotFound], wrapped or bare; any other error means
// that it could not look.
type SecretGetter func(ctx context.Context, namespace, name string) (*Object, error)

const (
	// ErrNotFound is the error of a [SecretGetter] that looked and found no such Secret.
	ErrNotFound Check = "not found"
	// checkCredential: no token Secret has this ID and this secret. Nobody is told which of the
	// two was wrong.
	checkCredential Check = "credential"
)

// Authenticate says who the bearer of a token is, as kube-apiserver does
// (plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go, AuthenticateToken): the user
// system:bootstrap:<id> in the group system:bootstrappers and the token's extra groups.
//
// It refuses:
//   - with "bootstrap-token", anything not in the form of a bootstrap token: another authenticator
//     may know it;
//   - with "credential", an unknown ID and a wrong secret, with the same error and, apart
//     from the time that get itself takes, in the same time;
//   - with the checks of [ParseSecretFor], for authentication at now and in the same order,
//     the Secret of a bearer that knows the secret. Kubernetes checks deletion and type before
//     the secret, and so would reveal them to anybody;
//   - with [refusal.CheckConfig], a nil get and the zero time.
//
// An error from get other than [ErrNotFound], or an answer that is not the Secret that was
// asked for, gives [refusal.ErrRetry]: nothing is known about the bearer.
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
		return nil, &Error{Check: checkCredential, Got: "a token that is not known", Want: "the ID and the secret of a token Secret"}
	}
	s, err := ParseSecretFor(o, Usages{Authentication: true}, now)
	if err != nil {
		return nil, err
	}
	return s.User(), nil
}

// holdsSecret compares in time that does not depend on what d holds. A stored value of another
// length is compared as sixteen zero bytes, which are no token's secret.
func holdsSecret(d map[string][]byte, t Token) bool {
	var stored [secretSize]byte
	if value := d[keySecret]; len(value) == secretSize {
		copy(stored[:], value)
	}
	return subtle.ConstantTimeCompare(stored[:], t.key()) == 1
}
