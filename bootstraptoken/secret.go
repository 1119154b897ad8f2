package bootstraptoken

import (
	"slices"
	"strings"
	"time"
)

// What a token Secret is called and what its data says, as in Kubernetes
// (k8s.io/cluster-bootstrap/token/api, types.go).
const (
	// Namespace is the one namespace where tokens are looked for.
	Namespace = "kube-system"
	// SecretType is the type of every token Secret.
	SecretType = "bootstrap.kubernetes.io/token"
	// SecretNamePrefix and the token's ID are the name of its Secret.
	SecretNamePrefix = "bootstrap-token-"
	// UserPrefix and the token's ID are the user that a token authenticates as.
	UserPrefix = "system:bootstrap:"
	// DefaultGroup is the group that every token authenticates as.
	DefaultGroup = "system:bootstrappers"
	// GroupPrefix begins every extra group.
	GroupPrefix = DefaultGroup + ":"
)

// The keys of a token Secret's data.
const (
	keyID             = "token-id"
	keySecret         = "token-secret"
	keyExpiration     = "expiration"
	keyDescription    = "description"
	keyGroups         = "auth-extra-groups"
	keySigning        = "usage-bootstrap-signing"
	keyAuthentication = "usage-bootstrap-authentication"
)

// Usages say what a token may be used for. The zero Usages allow nothing.
type Usages struct {
	// Signing: the token's secret signs the cluster's discovery document.
	Signing bool
	// Authentication: the token is a bearer token for the API.
	Authentication bool
}

// Secret is what a token Secret says: the token, and what it may be used for until when.
type Secret struct {
	// Token is the token itself. It shows its secret to nobody by chance.
	Token Token
	// Description is free text for people, in UTF-8; empty where there is none.
	Description string
	// Expiration is when the token ends: at that instant it is expired already. The
	// zero time means never.
	Expiration time.Time
	// Usages say what the token may be used for.
	Usages Usages
	// Groups are the extra groups, behind [DefaultGroup], that the token authenticates
	// as, in the order of the Secret. Each begins with [GroupPrefix]; see [CheckGroups].
	Groups []string
}

// Expired reports whether the token has ended at now: at the instant of its expiration
// and after it (k8s.io/cluster-bootstrap/util/secrets, GetExpiration). A token that has an
// expiration is expired at the zero time too, which is a clock that nobody set.
func (s *Secret) Expired(now time.Time) bool {
	return !s.Expiration.IsZero() && (now.IsZero() || !now.Before(s.Expiration))
}

// User is who a token authenticates as.
type User struct {
	// Name is [UserPrefix] and the token's ID.
	Name string
	// Groups are [DefaultGroup] and the token's extra groups, sorted, each once.
	Groups []string
}

// User returns who the token authenticates as: whether it may is for [Authenticate] to say.
func (s *Secret) User() *User { return newUser(s.Token.ID(), s.Groups) }

func newUser(id string, extra []string) *User {
	groups := append([]string{DefaultGroup}, extra...)
	slices.Sort(groups)
	return &User{Name: UserPrefix + id, Groups: slices.Compact(groups)}
}

// SecretName returns the name of the Secret of the token with this ID.
func SecretName(id string) string { return SecretNamePrefix + id }

// isGroup reports whether s is what \Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z
// matches.
func isGroup(s string) bool {
	name, ok := strings.CutPrefix(s, GroupPrefix)
	if !ok || len(name) < 1 || len(name) > 256 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		word := '0' <= c && c <= '9' || 'a' <= c && c <= 'z'
		if !word && (i == len(name)-1 || c != ':' && c != '-') {
			return false
		}
	}
	return true
}
