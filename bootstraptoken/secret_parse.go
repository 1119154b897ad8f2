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

// The checks that an object must pass to be a token Secret, in order, which is that of
// kube-apiserver (plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go). The checks marked
// "ours" are additional: kube-apiserver, the controllers or kubeadm do not make them.
const (
	// checkNamespace: the object is not in [Namespace]. kubeadm does not check.
	checkNamespace Check = "namespace"
	// checkName: the name is not "bootstrap-token-" followed by an ID.
	checkName Check = "name"
	// checkDeleted: the object has a deletionTimestamp. The signer and kubeadm do not check.
	checkDeleted Check = "deleted"
	// checkType: the type is not [SecretType]. kubeadm asks the API only for this type, and does
	// not check again.
	checkType Check = "type"
	// checkSize: the data has more than 65,536 bytes (ours).
	checkSize Check = "size"
	// checkSecret: token-secret is missing or not a token's secret. The signer accepts any that
	// is not empty.
	checkSecret Check = "token-secret"
	// checkID: token-id is missing or not the ID in the name.
	checkID Check = "bootstrap-token-id"
	// checkExpiration: expiration is not a time of RFC 3339, section 5.6. Kubernetes' token
	// cleaner deletes such a Secret; [Sweep] does not. An empty value, which Kubernetes reads as
	// "never", is refused too (ours), and so is what Go's time.Parse accepts beyond RFC 3339: a
	// comma before the fraction, an hour of one digit (ours).
	checkExpiration Check = "bootstrap-token-expiration"
	// checkExpired: the token has expired; see [Secret.Expired].
	checkExpired Check = "bootstrap-token-expired"
	// checkUsage: the token does not allow the requested usage, or a usage is neither "true" nor
	// "false" nor empty: Kubernetes silently reads every other spelling as "false" (ours).
	checkUsage Check = "usage"
	// checkGroups: an entry of auth-extra-groups is not
	// \Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z (BootstrapGroupPattern). One bad entry
	// is enough to refuse the token. kubeadm lists it all the same.
	checkGroups Check = "auth-extra-groups"
	// checkDescription: the description is not UTF-8 (ours).
	checkDescription Check = "description"
	// checkUnknownKey: the data has a known key in a different case, such as Expiration (ours).
	// Keys that this package does not know, such as the usages that k0s has for its own API and
	// auth-groups of the bootstrap discovery document of 2016, mean nothing to Kubernetes and
	// are ignored when a Secret is read; [Secret.Object], which would lose them, refuses them.
	checkUnknownKey Check = "unknown-key"
)

// ParseSecretUnchecked reads a token Secret. It checks the form of everything, but not expiration
// and usages, since a list shows every token: [ParseSecretFor] does. The error is the first check
// that fails, of "namespace", "name", "deleted", "type", "size", "token-secret",
// "bootstrap-token-id", "bootstrap-token-expiration", "usage", "auth-extra-groups", "description"
// and "unknown-key".
//
// It does not authenticate: a token that is Equal to s.Token may have expired years ago, or may
// only sign. [Authenticate] decides.
//
// ParseSecretUnchecked is stricter than any of Kubernetes' readers, which differ: they all read an
// accepted Secret in the same way.
func ParseSecretUnchecked(o *Object) (*Secret, error) { return decode(o, Usages{}, time.Time{}) }

// ParseSecretFor reads a token Secret as [ParseSecretUnchecked] does and checks whether the
// token may be used now for what wanted names: every usage that is set must be allowed. The
// order is kube-apiserver's: "bootstrap-token-expired" and "usage" come after
// "bootstrap-token-expiration", and before "auth-extra-groups". The error is
// [refusal.CheckConfig] if wanted names none, or now is the zero time.
func ParseSecretFor(o *Object, wanted Usages, now time.Time) (*Secret, error) {
	if wanted == (Usages{}) {
		return nil, refusal.Config("wanted usages", "", "at least one")
	}
	if now.IsZero() {
		return nil, errClock()
	}
	return decode(o, wanted, now)
}

// decode reads a Secret for the wanted usages at now; without any, the expiration is not compared.
func decode(o *Object, wanted Usages, now time.Time) (*Secret, error) {
	id, err := checkObject(o)
	if err != nil {
		return nil, err
	}
	r := secretReader{id: id, data: o.Data.Reveal(), wanted: wanted, now: now, s: new(Secret)}
	for _, read := range []func() error{r.token, r.expiration, r.usages, r.groups, r.description, r.unknown} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	r.s.Labels, r.s.Annotations = o.Labels, o.Annotations
	return r.s, nil
}

// checkObject checks all but the data, and returns the ID in the name.
func checkObject(o *Object) (string, error) {
	if o == nil {
		return "", &Error{Check: checkName, Got: "no object", Want: secretNamePrefix + wantID}
	}
	id, named := idOf(o.Name)
	switch {
	case o.Namespace != Namespace:
		return "", &Error{Check: checkNamespace, Got: describe([]byte(o.Namespace)), Want: strconv.Quote(Namespace)}
	case !named:
		return "", &Error{Check: checkName, Got: describe([]byte(o.Name)), Want: secretNamePrefix + wantID}
	case o.Deleted != nil:
		return "", &Error{Check: checkDeleted, Got: "an object deleted at " + o.Deleted.UTC().Format(time.RFC3339), Want: "one that is not"}
	case o.Type != SecretType:
		return "", &Error{Check: checkType, Got: describe([]byte(o.Type)), Want: strconv.Quote(SecretType)}
	}
	return id, checkDataSize(o.Data.Reveal())
}

// idOf returns the ID in the name of a token Secret.
func idOf(name string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, secretNamePrefix)
	return id, ok && isID(id)
}

func checkDataSize(d map[string][]byte) error {
	size := 0
	for key, value := range d {
		size += len(key) + len(value)
	}
	if size > maxSecretSize {
		return &Error{Check: checkSize, Got: strconv.Itoa(size) + " bytes", Want: "at most " + strconv.Itoa(maxSecretSize)}
	}
	return nil
}

// A secretReader reads a Secret from its data, one key after the other.
type secretReader struct {
	id     string // in the name
	data   map[string][]byte
	wanted Usages
	now    time.Time
	s      *Secret
}

func (r *secretReader) token() (err error) {
	text := string(r.data[keySecret])
	if !isSecret(text) {
		return &Error{Check: checkSecret, Got: strconv.Itoa(len(text)) + " bytes", Want: wantSecret}
	}
	if string(r.data[keyID]) != r.id {
		return &Error{Check: checkID, Got: describe(r.data[keyID]), Want: strconv.Quote(r.id)}
	}
	r.s.Token, err = New(r.id, text)
	return err
}

func (r *secretReader) expiration() (err error) {
	if r.s.Expiration, err = decodeExpiration(r.data); err != nil {
		return err
	}
	if r.wanted != (Usages{}) && r.s.Expired(r.now) {
		return &Error{Check: checkExpired, Got: r.now.UTC().Format(time.RFC3339Nano), Want: "a time before " + r.s.Expiration.UTC().Format(time.RFC3339Nano)}
	}
	return nil
}

// decodeExpiration returns the zero time without an expiration. A text that gives the zero time is
// refused: it would read as "never".
func decodeExpiration(d map[string][]byte) (time.Time, error) {
	text, set := d[keyExpiration]
	if !set {
		return time.Time{}, nil
	}
	end, err := time.Parse(time.RFC3339, string(text))
	if err != nil || end.IsZero() || !dateTime().Match(text) {
		return time.Time{}, &Error{Check: checkExpiration, Got: describe(text), Want: "a time of RFC 3339, as 2006-01-02T15:04:05Z"}
	}
	return end, nil
}

// dateTime is the grammar of RFC 3339, section 5.6, in uppercase. time.Parse checks the ranges
// of numbers, but accepts more: an hour of one digit, a comma before the fraction, and the
// zones +24:00 and +01:60.
var dateTime = pattern(`\A[0-9-]{10}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])\z`)

func (r *secretReader) usages() error {
	fields := r.s.Usages.fields()
	for _, u := range fields {
		switch text := r.data[u.key]; string(text) {
		case "true":
			*u.allowed = true
		case "false", "":
		default:
			return &Error{Check: checkUsage, Got: u.key + ": " + describe(text), Want: `"true" or "false"`}
		}
	}
	for i, wanted := range r.wanted.fields() {
		if *wanted.allowed && !*fields[i].allowed {
			return &Error{Check: checkUsage, Got: "a token without " + wanted.key, Want: wanted.key + `: "true"`}
		}
	}
	return nil
}

const wantGroup = groupPrefix + "[a-z0-9:-]{0,255}[a-z0-9]"

func (r *secretReader) groups() error {
	if len(r.data[keyGroups]) == 0 {
		return nil
	}
	r.s.Groups = strings.Split(string(r.data[keyGroups]), ",")
	for _, group := range r.s.Groups {
		if !groupPattern().MatchString(group) {
			return &Error{Check: checkGroups, Got: describe([]byte(group)), Want: wantGroup}
		}
	}
	return nil
}

func (r *secretReader) description() error {
	r.s.Description = string(r.data[keyDescription])
	if !utf8.ValidString(r.s.Description) {
		return &Error{Check: checkDescription, Got: strconv.Itoa(len(r.s.Description)) + " bytes that are not", Want: "UTF-8"}
	}
	return nil
}

// unknown keeps the first unknown key, in order of name, and refuses a known one in a
// different case.
func (r *secretReader) unknown() error {
	known := []string{keyID, keySecret, keyExpiration, keyDescription, keyGroups, keySigning, keyAuthentication}
	for _, key := range slices.Sorted(maps.Keys(r.data)) {
		i := slices.IndexFunc(known, func(name string) bool { return strings.EqualFold(name, key) })
		switch {
		case i < 0 && r.s.unknown == "":
			r.s.unknown = describe([]byte(key))
		case i >= 0 && known[i] != key:
			return &Error{Check: checkUnknownKey, Got: describe([]byte(key)), Want: known[i]}
		}
	}
	return nil
}

func errClock() error { return refusal.Config("now", "the zero time", "the present") }
