package registry

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/refusal"
)

// ErrObject says that an object is not as a registry writes it: another program has changed it.
// It is no refusal: a call that depends on the object has to be retried until an administrator has
// repaired it.
var ErrObject = errors.New("an object of the registry is damaged")

// errSwapped says that an object has changed between a read and a write.
var errSwapped = errors.New("the object has changed")

// swapped returns errSwapped for an API server's answer to a write over a version that no
// longer exists.
func swapped(err error) error {
	if absent(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %w", errSwapped, err)
	}
	return err
}

// absent reports that an API server knows the kind of an object but has none of that name. An
// API server without the custom resource definitions answers 404 as well.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

func conflict(got, want string) error {
	return &attest.Error{Check: membership.CheckRegistryConflict, Got: got, Want: want, Err: refusal.ErrRetry}
}

// lost returns the refusal of a call that lost a race for a record.
func lost(err error, nodeName string) error {
	if errors.Is(err, errSwapped) {
		return conflict("a record of node "+nodeName+" that has changed", "the one that was read")
	}
	return err
}

func refused(err error) bool {
	_, ok := errors.AsType[*attest.Error](err)
	return ok
}
