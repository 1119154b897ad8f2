package bootstraptoken

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/refusal"
)

// The checks that an object must pass to be a token Secret, in their order, which is
// the one of kube-apiserver (plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go).
// Those marked "ours" let nothing through that kube-apiserver stops; they stop what it,
// the controllers or kubeadm would read past.
const (
	// CheckNamespace: the object is not in [Namespace]. kubeadm does not look.
	CheckNamespace Check = "namespace"
	// CheckName: the name is not [SecretNamePrefix] and an ID.
	CheckName Check = "name"
	// CheckDeleted: the object has a deletionTimestamp. The signer and kubeadm do not look.
	CheckDeleted Check = "deleted"
	// CheckType: the type is not [SecretType]. kubeadm asks the API for such alone, and does
	// not look again.
	CheckType Check = "type"
	// CheckSize: the data has more than [MaxSecretSize] bytes (ours).
	CheckSize Check = "size"
	// CheckSecret: token-secret is missing or not a token's secret. The signer takes
	// any that is not empty.
	CheckSecret Check = "token-secret"
	// CheckID: token-id is missing or not the ID in the name.
	CheckID Check = "token-id"
	// CheckExpiration: expiration is not a time of RFC 3339, section 5.6. Kubernetes'
	// token cleaner deletes such a Secret; [Sweep] does not. An empty value, which
	// Kubernetes reads as "never", is refused too (ours), and so is what Go's time.Parse
	// takes beyond RFC 3339: a comma before the fraction, an hour of one digit (ours).
	CheckExpiration Check = "expiration"
	// CheckExpired: the token has ended; see [Secret.Expired].
	CheckExpired Check = "expired"
	// CheckUsage: the token does not allow what it is used for, or a usage is neither
	// "true" nor "false" nor empty: Kubernetes takes every other spelling as "false",
	// silently (ours).
	CheckUsage Check = "usage"
	// CheckGroups: an entry of auth-extra-groups is not
	// \Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z (BootstrapGroupPattern). One
	// bad entry refuses the token. kubeadm lists it all the same.
	CheckGroups Check = "auth-extra-groups"
	// CheckDescription: the description is not UTF-8 (ours).
	CheckDescription Check = "description"
	// CheckUnknownKey: the data has a key that this package does not know (ours). Such a
	// key would be lost when the Secret is written again. The key "auth-groups" is one:
	// the bootstrap discovery document of 2016 has it in the place of auth-extra-groups,
	// no Kubernetes release reads it, and whoever wrote it expects groups that the token
	// does not have. A usage of another name is one too.
	CheckUnknownKey Check = "unknown-key"
)

// ParseSecret reads a token Secret. It checks the form of everything; it does not ask whether
// the token has expired or for what it may be used, since a list shows it in any case:
// [ParseSecretFor] does. The error is the first check that fails, of CheckNamespace,
// CheckName, CheckDeleted, CheckType, CheckSize, CheckSecret, CheckID, CheckExpiration,
// CheckUsage, CheckGroups, CheckDescription and CheckUnknownKey.
//
// ParseSecret is stricter than each of Kubernetes' readers, which differ; see the checks.
// What it reads, they read the same.
func ParseSecret(o *Object) (*Secret, error) { return decode(o, nil) }

// ParseSecretFor reads a token Secret as [ParseSecret] does and says whether the token may be used
// for what wanted names, now: every usage that is set must be allowed. The order is
// kube-apiserver's: CheckExpired and CheckUsage come after CheckExpiration, and before
// CheckGroups. The error is [refusal.CheckConfig] if wanted names none, or now is the
// zero time.
func ParseSecretFor(o *Object, wanted Usages, now time.Time) (*Secret, error) {
	if wanted == (Usages{}) {
		return nil, refusal.Config("wanted usages", "", "at least one")
	}
	if now.IsZero() {
		return nil, errClock()
	}
	return decode(o, &use{wanted, now})
}

// use is what a token is to be used for, and when.
type use struct {
	wanted Usages
	now    time.Time
}

func decode(o *Object, u *use) (*Secret, error) {
	id, err := checkObject(o)
	if err != nil {
		return nil, err
	}
	data, s := o.Data.Reveal(), new(Secret)
	if s.Token, err = decodeToken(data, id); err != nil {
		return nil, err
	}
	if s.Expiration, err = decodeExpiration(data); err != nil {
		return nil, err
	}
	if u != nil && s.Expired(u.now) {
		return nil, errExpired(s.Expiration, u.now)
	}
	if s.Usages, err = decodeUsages(data); err != nil {
		return nil, err
	}
	if u != nil {
		if err := s.Usages.allow(u.wanted); err != nil {
			return nil, err
		}
	}
	if s.Groups, err = decodeGroups(data); err != nil {
		return nil, err
	}
	s.Description = string(data[keyDescription])
	if err := checkDescription(s.Description); err != nil {
		return nil, err
	}
	if err := checkKeys(data); err != nil {
		return nil, err
	}
	return s, nil
}

// checkObject checks all but the data, and returns the ID in the name.
func checkObject(o *Object) (string, error) {
	if o == nil {
		return "", &Error{Check: CheckName, Got: "no object", Want: SecretNamePrefix + wantID}
	}
	if o.Namespace != Namespace {
		return "", &Error{Check: CheckNamespace, Got: describe([]byte(o.Namespace)), Want: strconv.Quote(Namespace)}
	}
	id, ok := strings.CutPrefix(o.Name, SecretNamePrefix)
	if !ok || !isID(id) {
		return "", &Error{Check: CheckName, Got: describe([]byte(o.Name)), Want: SecretNamePrefix + wantID}
	}
	if o.Deleted != nil {
		return "", &Error{Check: CheckDeleted, Got: "an object deleted at " + o.Deleted.UTC().Format(time.RFC3339), Want: "one that is not"}
	}
	if o.Type != SecretType {
		return "", &Error{Check: CheckType, Got: describe([]byte(o.Type)), Want: strconv.Quote(SecretType)}
	}
	return id, checkSize(o.Data.Reveal())
}

func checkSize(d map[string][]byte) error {
	size := 0
	for key, value := range d {
		size += len(key) + len(value)
	}
	if size > MaxSecretSize {
		return &Error{Check: CheckSize, Got: strconv.Itoa(size) + " bytes", Want: "at most " + strconv.Itoa(MaxSecretSize)}
	}
	return nil
}

func decodeToken(d map[string][]byte, id string) (Token, error) {
	secret := string(d[keySecret])
	if !isSecret(secret) {
		return Token{}, &Error{Check: CheckSecret, Got: strconv.Itoa(len(secret)) + " bytes", Want: wantSecret}
	}
	if string(d[keyID]) != id {
		return Token{}, &Error{Check: CheckID, Got: describe(d[keyID]), Want: strconv.Quote(id)}
	}
	return New(id, secret)
}

// decodeExpiration returns the zero time where there is none. A text that gives the zero
// time is refused: it would read as "never".
func decodeExpiration(d map[string][]byte) (time.Time, error) {
	text, ok := d[keyExpiration]
	if !ok {
		return time.Time{}, nil
	}
	end, _ := parseTime(string(text)) // the zero time for what is none
	if end.IsZero() {
		return time.Time{}, &Error{Check: CheckExpiration, Got: describe(text), Want: wantTime}
	}
	return end, nil
}

func decodeUsages(d map[string][]byte) (u Usages, err error) {
	if u.Signing, err = decodeUsage(d, keySigning); err != nil {
		return Usages{}, err
	}
	u.Authentication, err = decodeUsage(d, keyAuthentication)
	return u, err
}

func decodeUsage(d map[string][]byte, key string) (bool, error) {
	switch string(d[key]) {
	case "true":
		return true, nil
	case "false", "":
		return false, nil
	}
	return false, &Error{Check: CheckUsage, Got: key + ": " + describe(d[key]), Want: `"true" or "false"`}
}

// allow refuses a usage that is wanted and not set in u.
func (u Usages) allow(wanted Usages) error {
	if wanted.Signing && !u.Signing {
		return &Error{Check: CheckUsage, Got: "a token that may not sign", Want: keySigning + `: "true"`}
	}
	if wanted.Authentication && !u.Authentication {
		return &Error{Check: CheckUsage, Got: "a token that may not authenticate", Want: keyAuthentication + `: "true"`}
	}
	return nil
}

// decodeGroups returns nil where there are none.
func decodeGroups(d map[string][]byte) ([]string, error) {
	if len(d[keyGroups]) == 0 {
		return nil, nil
	}
	groups := strings.Split(string(d[keyGroups]), ",")
	return groups, checkGroups(groups)
}

func checkGroups(groups []string) error {
	for _, group := range groups {
		if !isGroup(group) {
			return &Error{Check: CheckGroups, Got: describe([]byte(group)), Want: GroupPrefix + "[a-z0-9:-]{0,255}[a-z0-9]"}
		}
	}
	return nil
}

func checkDescription(text string) error {
	if !utf8.ValidString(text) {
		return &Error{Check: CheckDescription, Got: strconv.Itoa(len(text)) + " bytes that are not", Want: "UTF-8"}
	}
	return nil
}

// checkKeys names the first of the keys that nobody knows, by name.
func checkKeys(d map[string][]byte) error {
	for _, key := range slices.Sorted(maps.Keys(d)) {
		switch key {
		case keyID, keySecret, keyExpiration, keyDescription, keyGroups, keySigning, keyAuthentication:
		default:
			return &Error{Check: CheckUnknownKey, Got: describe([]byte(key)), Want: "the keys of a token Secret"}
		}
	}
	return nil
}

func errExpired(end, now time.Time) error {
	return &Error{Check: CheckExpired, Got: now.UTC().Format(time.RFC3339Nano), Want: "a time before " + end.UTC().Format(time.RFC3339Nano)}
}

func errClock() error { return refusal.Config("now", "the zero time", "the present") }

const wantTime = "a time of RFC 3339, as 2006-01-02T15:04:05Z"

// parseTime reads a date-time of RFC 3339, section 5.6, in upper case. It reads nothing
// that time.Parse does not, and less: time.Parse takes an hour of one digit, a comma
// before the fraction, and the zones +24:00 and +01:60.
func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, false
	}
	const hourEnd, secondEnd = len("2006-01-02T15"), len("2006-01-02T15:04:05")
	if s[hourEnd] != ':' || s[secondEnd] == ',' {
		return time.Time{}, false
	}
	if s[len(s)-1] != 'Z' && (s[len(s)-5:len(s)-3] > "23" || s[len(s)-2:] > "59") {
		return time.Time{}, false
	}
	return t, true
}
