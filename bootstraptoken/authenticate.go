package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"errors"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// SecretGetter returns the Secret with this namespace and name, from the API or from a cache
// of it. For a missing Secret, its error is [ErrNotFound], wrapped or bare; any other error means
// that the question could not be answered.
type SecretGetter func(ctx context.Context, namespace, name string) (*Object, error)

// ErrNotFound is the error of a [SecretGetter] that looked and found no such Secret.
var ErrNotFound = errors.New("not found")

// checkCredential: no token Secret has this ID and this secret. The error does not say which of the
// two was wrong.
const checkCredential Check = "credential"

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
//     the secret, and so would reveal them to every requester;
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
