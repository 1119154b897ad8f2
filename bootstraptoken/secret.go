package bootstraptoken

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// The name of a token Secret and the keys of its data, as in Kubernetes
// (k8s.io/cluster-bootstrap/token/api, types.go).
const (
	// Namespace is the only namespace where tokens are looked for.
	Namespace = "kube-system"
	// SecretType is the type of every token Secret.
	SecretType = "bootstrap.kubernetes.io/token"
	// secretNamePrefix followed by the token's ID is the name of its Secret.
	secretNamePrefix = "bootstrap-token-"
	// userPrefix followed by the token's ID is the user that a token authenticates as.
	userPrefix = "system:bootstrap:"
	// defaultGroup is the group that every token authenticates as.
	defaultGroup = "system:bootstrappers"
	// groupPrefix begins every extra group.
	groupPrefix = defaultGroup + ":"
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

// Usages are the allowed uses of a token. The zero Usages allow nothing.
type Usages struct {
	// Signing: the token's secret signs the cluster's discovery document.
	Signing bool
	// Authentication: the token is a bearer token for the API.
	Authentication bool
}

// fields returns the usages with their keys, in the order in which they are read.
func (u *Usages) fields() []usage {
	return []usage{{keySigning, &u.Signing}, {keyAuthentication, &u.Authentication}}
}

type usage struct {
	key     string
	allowed *bool
}

// Secret is the content of a token Secret: the token, its usages and its expiration.
type Secret struct {
	// Token is the token itself. It never shows its secret by accident.
	Token Token
	// Description is free text for people, in UTF-8; it may be empty.
	Description string
	// Expiration is when the token expires: at that instant it is already expired. The zero time
	// means never.
	Expiration time.Time
	// Usages are the allowed uses.
	Usages Usages
	// Groups are the extra groups, in addition to system:bootstrappers, that the token
	// authenticates as, in the order of the Secret. Each is
	// system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9].
	Groups []string
	// Labels and Annotations are the object's, for other programs to find tokens by; see
	// [Object].
	Labels      map[string]string
	Annotations secret.Value[map[string]string]

	unknown string // a key of the data that was read and is not kept, as describe gives it; or ""
}

// Expired reports whether the token is expired at now, that is, at or after its expiration
// (k8s.io/cluster-bootstrap/util/secrets, GetExpiration). A token with an expiration is also
// expired at the zero time, which means a clock that is not set.
func (s *Secret) Expired(now time.Time) bool {
	return s != nil && !s.Expiration.IsZero() && (now.IsZero() || !now.Before(s.Expiration))
}

// User is the user that a token authenticates as.
type User struct {
	// Name is "system:bootstrap:" and the token's ID.
	Name string
	// Groups are system:bootstrappers and the token's extra groups, sorted, each once.
	Groups []string
}

// User returns the user of the token; [Authenticate] decides whether the token is accepted.
func (s *Secret) User() *User {
	groups := append([]string{defaultGroup}, s.Groups...)
	slices.Sort(groups)
	return &User{Name: userPrefix + s.Token.ID(), Groups: slices.Compact(groups)}
}

// SecretName returns the name of the Secret of the token with this ID.
func SecretName(id string) string { return secretNamePrefix + id }

// groupPattern is what Kubernetes accepts as an extra group (BootstrapGroupPattern).
var groupPattern = pattern(`\A` + groupPrefix + `[a-z0-9:-]{0,255}[a-z0-9]\z`)

// pattern is compiled when it is first used, for the sake of programs that never do.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Object makes the object that kubeadm would: in [Namespace], with its expiration in UTC
// seconds and no key for an empty field. A fraction of a second in Expiration is dropped, so a
// token never lives longer than Expiration. The errors are from [ParseSecretUnchecked],
// which reads the result and must give s back; and "unknown-key"
// if s was read from a Secret with a key that would be lost.
func (s *Secret) Object() (*Object, error) {
	if s == nil || s.Token.IsZero() {
		return nil, &Error{Check: checkToken, Want: wantToken}
	}
	if s.unknown != "" {
		return nil, &Error{Check: checkUnknownKey, Got: s.unknown, Want: "the keys of a token Secret, which is written whole"}
	}
	data := map[string][]byte{keyID: []byte(s.Token.ID()), keySecret: s.Token.key()}
	if s.Description != "" {
		data[keyDescription] = []byte(s.Description)
	}
	if !s.Expiration.IsZero() {
		data[keyExpiration] = []byte(s.Expiration.UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	for _, u := range s.Usages.fields() {
		if *u.allowed {
			data[u.key] = []byte("true")
		}
	}
	if len(s.Groups) > 0 {
		data[keyGroups] = []byte(strings.Join(s.Groups, ","))
	}
	o := &Object{Namespace: Namespace, Name: SecretName(s.Token.ID()), Type: SecretType, Data: secret.New(data),
		Labels: s.Labels, Annotations: s.Annotations}
	read, err := ParseSecretUnchecked(o)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(read.Groups, s.Groups) {
		return nil, &Error{Check: checkGroups, Got: "a group that is empty, or has a comma", Want: wantGroup}
	}
	return o, nil
}

// Object has the fields of a Kubernetes Secret (core/v1) that this package reads or writes.
type Object struct {
	// Namespace, Name, UID and ResourceVersion are in the object's metadata. UID and
	// ResourceVersion may be empty; no check needs them, but [Sweep] passes them on.
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string
	// Deleted is the object's deletionTimestamp: nil unless the object is being deleted.
	Deleted *time.Time
	// Type is the Secret's type, which for a token is [SecretType].
	Type string
	// Data is the Secret's data, values by key, not base64-encoded, as in client-go:
	// secret.New(s.Data). Nothing here changes it.
	Data secret.Value[map[string][]byte]
	// Labels and Annotations are in the object's metadata. No check depends on them; they
	// are kept when the object is read and written, and nothing here changes them. kubectl apply
	// writes a copy of the whole Secret into an annotation: it is shown no more than Data.
	Labels      map[string]string
	Annotations secret.Value[map[string]string]
}

// String returns the namespace, name and type.
func (o Object) String() string {
	return "Secret " + describe([]byte(o.Name)) + " in " + describe([]byte(o.Namespace)) + " of type " + describe([]byte(o.Type))
}

// describe quotes a value for an error or a log. Putting a whole token in place of its ID, or
// a secret in place of a name, is a mistake that people make: if a run of letters and digits
// is long enough to be most of a secret, only the length is given.
func describe(value []byte) string {
	row := 0
	for _, c := range value {
		row++
		if letter := c | 0x20; (c < '0' || c > '9') && (letter < 'a' || letter > 'z') {
			row = 0
		}
		if row > 13 { // "bootstrappers" has 13
			return strconv.Itoa(len(value)) + " bytes"
		}
	}
	return refusal.Quote(string(value))
}
