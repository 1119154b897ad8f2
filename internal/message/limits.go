package message

import "time"

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
