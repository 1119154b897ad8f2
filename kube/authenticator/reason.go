package authenticator

import (
	"context"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeattest/nodeattest/kube/internal/remedies"
	"github.com/nodeattest/nodeattest/refusal"
)

// reason names the cause of a failed attempt for the label of a metric, which must not have as many values
// as other programs choose to write. It is the reason of a denial if that is one of the controller's that
// this program knows (package remedies), else OtherDenial; the name of the check that failed on this machine;
// the kind of an error of the API server or the network; or Other.
func reason(err error) string {
	denial, denied := errors.AsType[*deniedError](err)
	check, checked := errors.AsType[refusal.Check](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return ""
	case denied && remedies.Known(denial.condition.Reason):
		return denial.condition.Reason
	case denied:
		return "OtherDenial"
	case checked && check == refusal.ErrRetry:
		return "TryAgain"
	case checked:
		return remedies.Reason(string(check))
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "Timeout"
	case apierrors.IsUnauthorized(err):
		return "Unauthorized"
	case apierrors.IsForbidden(err):
		return "Forbidden"
	case apierrors.IsTooManyRequests(err):
		return "TooManyRequests"
	case network:
		return "Unreachable"
	}
	return "Other"
}
