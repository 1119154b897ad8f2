package bootstraptoken

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// DefaultTTL is the life of a token for which none is given, as kubeadm has it
// (cmd/kubeadm/app/constants, DefaultTokenDuration).
const DefaultTTL = 24 * time.Hour

// NodeGroup is the extra group of the tokens that kubeadm creates: the one that kubeadm
// allows to file a node's request (cmd/kubeadm/app/constants, NodeBootstrapTokenAuthGroup).
const NodeGroup = GroupPrefix + "kubeadm:default-node-token"

// CreateOptions are what [Create] may be told. The zero CreateOptions give the token that
// `kubeadm token create` gives.
type CreateOptions struct {
	// Token is the token; the zero Token means a new one of [Generate].
	Token Token
	// Description is free text for people.
	Description string
	// TTL is how long the token lives, one second at least; 0 means [DefaultTTL]. For
	// kubeadm 0 means for ever: see InsecureNeverExpires.
	TTL time.Duration
	// InsecureNeverExpires makes a token that lives until it is deleted. TTL must be 0.
	InsecureNeverExpires bool
	// Usages are what the token may be used for; the zero Usages mean both.
	Usages Usages
	// Groups are the extra groups; nil means [NodeGroup] if the token may authenticate,
	// and an empty slice that is not nil means none.
	Groups []string
}

// Create makes a token Secret that begins at now, as `kubeadm token create` does. The
// caller stores its [Secret.Object], and shows its token once. The errors are
// [refusal.CheckConfig], also if now is the zero time, and those of [Secret.Object].
func Create(options CreateOptions, now time.Time) (*Secret, error) {
	if now.IsZero() {
		return nil, errClock()
	}
	if options.TTL < 0 || 0 < options.TTL && options.TTL < time.Second {
		return nil, refusal.Config("TTL", options.TTL.String(), "0, or at least 1s")
	}
	if options.InsecureNeverExpires && options.TTL != 0 {
		return nil, refusal.Config("TTL", options.TTL.String()+" for a token that never expires", "0")
	}
	s := &Secret{Token: options.Token, Description: options.Description, Usages: options.Usages, Groups: slices.Clone(options.Groups)}
	if s.Token.IsZero() {
		s.Token = Generate()
	}
	if !options.InsecureNeverExpires {
		s.Expiration = now.Add(cmp.Or(options.TTL, DefaultTTL)).UTC().Truncate(time.Second)
	}
	if s.Usages == (Usages{}) {
		s.Usages = Usages{Signing: true, Authentication: true}
	}
	if options.Groups == nil && s.Usages.Authentication {
		s.Groups = []string{NodeGroup}
	}
	if _, err := s.Object(); err != nil {
		return nil, err
	}
	return s, nil
}

// ParseID reads what `kubeadm token delete` takes, a token's ID or a whole token, and
// returns the ID. The error is [CheckToken].
func ParseID(s string) (string, error) {
	if isID(s) {
		return s, nil
	}
	token, err := Parse(s)
	if err != nil {
		return "", &Error{Check: CheckToken, Got: strconv.Itoa(len(s)) + " bytes", Want: wantID + " or " + wantToken}
	}
	return token.ID(), nil
}
