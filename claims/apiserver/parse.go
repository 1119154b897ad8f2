package apiserver

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// parseClaims decodes a claim set with the verdict of a kube-apiserver, whose decoder
// (go-jose v2) accepts more than [claims.Parse]: times with a fraction or an exponent,
// truncated towards zero, even those beyond int64; names that differ in case; text that is
// not valid UTF-8, with U+FFFD for the invalid parts; null for everything but "aud". Both
// refuse duplicate names and wrong types. The API server's limit on the size of a token is
// in its HTTP server; here it is [claims.MaxClaimsSize]. The errors are
// [claims.CheckSize], [claims.CheckEncoding] and [claims.CheckType].
//
// It reports whether Parse accepts the claim set too. Of a claim set for Kubernetes136, what
// 1.37 has added is left out.
func parseClaims(payload []byte, release Release) (c *claims.Claims, strict bool, err error) {
	c, err = claims.Parse(payload)
	switch {
	case errors.Is(err, claims.CheckSize):
		return nil, false, err
	case err != nil:
		c, err = parseLenient(payload, release)
		return c, false, err
	case release == Kubernetes136:
		k := &c.Kubernetes
		k.ValidatingWebhookConfiguration, k.MutatingWebhookConfiguration, k.Attestations = nil, nil, nil
	}
	return c, true, nil
}

func parseLenient(payload []byte, release Release) (*claims.Claims, error) {
	c := &claims.Claims{}
	k := &c.Kubernetes
	private := object{
		"namespace":      &k.Namespace,
		"serviceaccount": reference(&k.ServiceAccount),
		"pod":            &made{&k.Pod},
		"secret":         &made{&k.Secret},
		"node":           &made{&k.Node},
		"warnafter":      (*date)(&k.WarnAfter),
	}
	if release != Kubernetes136 {
		private["validatingwebhookconfiguration"] = &made{&k.ValidatingWebhookConfiguration}
		private["mutatingwebhookconfiguration"] = &made{&k.MutatingWebhookConfiguration}
		private["attestations"] = &attested{&k.Attestations}
	}
	err := unmarshal(payload, &object{
		"iss":           &c.Issuer,
		"sub":           &c.Subject,
		"jti":           &c.ID,
		"aud":           (*audiences)(&c.Audiences),
		"exp":           (*date)(&c.Expiry),
		"nbf":           (*date)(&c.NotBefore),
		"iat":           (*date)(&c.IssuedAt),
		"kubernetes.io": &private,
	}, &refusal.Error{Check: claims.CheckEncoding, Got: "no JSON", Want: "one JSON object"})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// unmarshal reads a value. An error of encoding/json is the cause of the refusal.
func unmarshal(value []byte, to any, refused *refusal.Error) error {
	err := json.Unmarshal(value, to)
	if _, own := errors.AsType[*refusal.Error](err); own || err == nil {
		return err
	}
	refused.Err = err
	return refused
}

// An object has, for each known member of a JSON object, where its value goes; null goes nowhere.
// Unlike encoding/json it takes names as they are written, and each once. Unknown members are
// ignored.
type object map[string]any

// UnmarshalJSON reads an object.
func (o object) UnmarshalJSON(value []byte) error {
	d := json.NewDecoder(bytes.NewReader(value)) // whose own errors json.Unmarshal has found before
	switch token, err := d.Token(); token {
	case nil:
		return err // null
	case json.Delim('{'):
	default:
		return &refusal.Error{Check: claims.CheckType, Got: refusal.Text(string(value)), Want: "an object"}
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err := errors.Join(err, d.Decode(&value)); err != nil {
			return err
		}
		if seen[name] {
			return &refusal.Error{Check: claims.CheckEncoding, Got: "the member " + strconv.Quote(refusal.Text(name)) + " again", Want: "each once"}
		}
		seen[name] = true
		if to, known := o[name]; known {
			other := &refusal.Error{Check: claims.CheckType, Got: name + " " + refusal.Text(string(value)), Want: "another type"}
			if err := unmarshal(value, to, other); err != nil {
				return err
			}
		}
	}
	return nil
}

// A date is read from a number in any form. A value that does not fit int64 becomes whatever this
// platform's conversion makes of it, as in the API server.
type date claims.NumericDate

// UnmarshalJSON reads a number.
func (d *date) UnmarshalJSON(value []byte) error {
	var f *float64 // nil for null
	if err := json.Unmarshal(value, &f); err != nil || f == nil {
		return err
	}
	*d = date{Unix: int64(*f), Present: true}
	return nil
}

// audiences are read from one string or an array of strings. Null is no audience.
type audiences []string

// UnmarshalJSON reads a string or an array.
func (a *audiences) UnmarshalJSON(value []byte) error {
	if value[0] == '"' {
		value = slices.Concat([]byte("["), value, []byte("]"))
	}
	var list []*string // a null element is nil
	if err := json.Unmarshal(value, &list); err != nil || list == nil || slices.Contains(list, nil) {
		return &refusal.Error{Check: claims.CheckType, Got: "aud " + refusal.Text(string(value)), Want: "a string or an array of strings"}
	}
	*a = make(audiences, len(list))
	for i, s := range list {
		(*a)[i] = *s
	}
	return nil
}

func reference(to *claims.Ref) *object { return &object{"name": &to.Name, "uid": &to.UID} }

// A made reference is one that is optional.
type made struct{ to **claims.Ref }

// UnmarshalJSON reads a reference.
func (m *made) UnmarshalJSON(value []byte) error {
	if string(value) == "null" {
		return nil
	}
	*m.to = &claims.Ref{}
	return reference(*m.to).UnmarshalJSON(value)
}

// attested are lists of strings, in each of which null is "", under any name.
type attested struct{ to **claims.Attestations }

// UnmarshalJSON reads an object of lists.
func (a *attested) UnmarshalJSON(value []byte) error {
	var all map[string][]string
	if err := cmp.Or(json.Unmarshal(value, &object{}), json.Unmarshal(value, &all)); err != nil {
		return err
	}
	*a.to = &claims.Attestations{AdmissionReviewAPIGroups: all["admissionReviewAPIGroups"]}
	return nil
}

// untrusted is a token as kube-apiserver reads it before it verifies anything.
type untrusted struct {
	release   Release
	parsed    *jws.Token // nil if its signature cannot be good
	err       error      // why parsed is nil
	keyID     string
	issuer    string // as encoding/json reads it; "" if kube-apiserver sees no token
	claims    *claims.Claims
	claimsErr error // why claims is nil
}

// readUntrusted reads a token. kube-apiserver's reader accepts some spellings of base64url
// that package jws refuses, and verifies the canonical one instead: so does this.
func readUntrusted(token string, release Release) *untrusted {
	t := &untrusted{release: release}
	t.parsed, t.err = jws.Parse(token)
	if t.err != nil {
		return t.readLoose(token)
	}
	t.keyID = t.parsed.KeyID()
	t.readClaims(t.parsed.UnverifiedPayload())
	return t
}

// readClaims decodes the claims, and the issuer as the API server first reads it: with
// encoding/json, where the last "iss" in any case wins.
func (t *untrusted) readClaims(payload []byte) {
	var strict bool
	if t.claims, strict, t.claimsErr = parseClaims(payload, t.release); strict {
		t.issuer = t.claims.Issuer
		return
	}
	var first struct {
		Issuer string `json:"iss"`
	}
	if len(payload) <= claims.MaxClaimsSize && json.Unmarshal(payload, &first) == nil {
		t.issuer = first.Issuer
	}
}

// readLoose reads a token that jws.Parse refuses, with t.err.
func (t *untrusted) readLoose(token string) *untrusted {
	if len(token) > jws.MaxTokenSize || strings.HasPrefix(strings.TrimSpace(token), "{") {
		return t
	}
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		return t
	}
	// The payload is first decoded as is, then everything is decoded without white space.
	if _, err := base64.RawURLEncoding.DecodeString(segments[1]); err != nil {
		return t
	}
	var decoded [3][]byte
	for i, segment := range segments {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(strings.Join(strings.Fields(segment), "")); err != nil {
			return t
		}
		segments[i] = base64.RawURLEncoding.EncodeToString(decoded[i])
	}
	// The key ID is read from a header without duplicate members. kube-apiserver treats an empty
	// header as one without members, so it is the signature that it refuses.
	var algorithm string
	if header := decoded[0]; len(header) > 0 && json.Unmarshal(header, &object{"alg": &algorithm, "kid": &t.keyID}) != nil {
		return t
	}
	t.readClaims(decoded[1])
	if canonical := strings.Join(segments, "."); canonical != token {
		t.parsed, t.err = jws.Parse(canonical)
	}
	return t
}
