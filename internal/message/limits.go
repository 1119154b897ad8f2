package message

import (
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Time limits of the join.
const (
	// DefaultWindow is how long a challenge can be answered, and MaxWindow the longest window
	// that a control plane may set and a node accepts.
	DefaultWindow = 10 * time.Minute
	MaxWindow     = time.Hour
	// MaxHelloAge is how old a hello may be when it is challenged, and MaxAnswerAge an
	// answer when it is verified.
	MaxHelloAge  = 5 * time.Minute
	MaxAnswerAge = time.Hour
	// MaxRingAge is how old a reading of a shared key ring may be.
	MaxRingAge = 60 * time.Second
	// RetireAfter is how long a key stays valid after its successor became active, in a
	// routine rotation.
	RetireAfter = 2 * time.Hour
)

// MaxIdentitySize bounds a machine identity in a registry or a list, in bytes.
const MaxIdentitySize = 1024

// ReasonChallenge is the reason of the Denied condition that carries a challenge to the
// node on Kubernetes.
const ReasonChallenge = "AttestationChallenge"

// Limits on the certificate signatures that one request may cost.
const (
	// MaxChainLinks limits the number of signatures in one chain.
	MaxChainLinks = 5
	// MaxFailedLinks limits the number of signatures in chains that turn out to be wrong.
	MaxFailedLinks = 4
)

// CheckBudget: a request would cost more than it may.
const CheckBudget refusal.Check = "work-budget"

// OverBudget is the refusal of what would cost more than limit.
func OverBudget(what string, limit int) error {
	return &refusal.Error{Check: CheckBudget, Got: "more " + what + " than that", Want: "at most " + strconv.Itoa(limit) + " for a request"}
}
