package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
	private := []member{
		{"namespace", text(&k.Namespace)},
		{"serviceaccount", reference(&k.ServiceAccount)},
		{"pod", made(&k.Pod)},
		{"secret", made(&k.Secret)},
		{"node", made(&k.Node)},
		{"warnafter", date(&k.WarnAfter)},
	}
	if release != Kubernetes136 {
		private = append(private,
			member{"validatingwebhookconfiguration", made(&k.ValidatingWebhookConfiguration)},
			member{"mutatingwebhookconfiguration", made(&k.MutatingWebhookConfiguration)},
			member{"attestations", attestations(&k.Attestations)})
	}
	set := object(
		member{"iss", text(&c.Issuer)},
		member{"sub", text(&c.Subject)},
		member{"jti", text(&c.ID)},
		member{"aud", audiences(&c.Audiences)},
		member{"exp", date(&c.Expiry)},
		member{"nbf", date(&c.NotBefore)},
		member{"iat", date(&c.IssuedAt)},
		member{"kubernetes.io", object(private...)},
	)
	if err := set("the claim set", payload); err != nil {
		return nil, err
	}
	return c, nil
}

// A reader reads the value of the member with that name. It treats JSON null as no value,
// except for audiences.
type reader func(name string, value []byte) error

// A member is a known member and its reader.
type member struct {
	name string
	read reader
}

func wrongType(name string, value []byte, want string) error {
	return &Error{Check: claims.CheckType, Got: name + " " + refusal.Text(string(value)), Want: want}
}

func isNull(value []byte) bool { return bytes.Equal(bytes.TrimSpace(value), []byte("null")) }

// object reads an object without duplicate members. Unknown members are ignored.
func object(known ...member) reader {
	return func(name string, value []byte) error {
		if !json.Valid(value) {
			return &Error{Check: claims.CheckEncoding, Got: "no JSON", Want: "one JSON object"}
		}
		if isNull(value) {
			return nil
		}
		d := json.NewDecoder(bytes.NewReader(value)) // it finds no error that Valid did not
		if token, err := d.Token(); err != nil || token != json.Delim('{') {
			return wrongType(name, value, "an object")
		}
		seen := map[string]bool{}
		for d.More() {
			token, err := d.Token()
			name, _ := token.(string)
			var value json.RawMessage
			if err := errors.Join(err, d.Decode(&value)); err != nil {
				return &Error{Check: claims.CheckEncoding, Err: err}
			}
			if seen[name] {
				return &Error{Check: claims.CheckEncoding, Got: "the member " + strconv.Quote(refusal.Text(name)) + " again", Want: "each once"}
			}
			seen[name] = true
			for _, m := range known {
				if m.name != name {
					continue
				}
				if err := m.read(name, value); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func text(to *string) reader {
	return func(name string, value []byte) error {
		if json.Unmarshal(value, to) != nil {
			return wrongType(name, value, "a string")
		}
		return nil
	}
}

// date reads a number in any form. A value that does not fit int64 becomes whatever this
// platform's conversion makes of it, as in the API server.
func date(to *claims.NumericDate) reader {
	return func(name string, value []byte) error {
		if isNull(value) {
			return nil
		}
		f, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return wrongType(name, value, "a number")
		}
		*to = claims.NumericDate{Unix: int64(f), Present: true}
		return nil
	}
}

func audiences(to *[]string) reader {
	return func(name string, value []byte) error {
		list := value
		if value[0] == '"' {
			list = slices.Concat([]byte("["), value, []byte("]"))
		}
		var read []*string // a null element is nil
		if list[0] != '[' || json.Unmarshal(list, &read) != nil || slices.Contains(read, nil) {
			return wrongType(name, value, "a string or an array of strings")
		}
		*to = make([]string, len(read))
		for i, s := range read {
			(*to)[i] = *s
		}
		return nil
	}
}

// attestations reads lists of strings, in each of which null is "", under any name.
func attestations(to **claims.Attestations) reader {
	return func(name string, value []byte) error {
		if err := object()(name, value); err != nil {
			return err
		}
		var all map[string][]string
		if json.Unmarshal(value, &all) != nil {
			return wrongType(name, value, "lists of strings")
		}
		*to = &claims.Attestations{AdmissionReviewAPIGroups: all["admissionReviewAPIGroups"]}
		return nil
	}
}

func reference(to *claims.Ref) reader {
	return object(member{"name", text(&to.Name)}, member{"uid", text(&to.UID)})
}

// made reads an optional reference.
func made(to **claims.Ref) reader {
	return func(name string, value []byte) error {
		if isNull(value) {
			return nil
		}
		*to = &claims.Ref{}
		return reference(*to)(name, value)
	}
}

// untrusted is a token as kube-apiserver reads it before it verifies anything.
type untrusted struct {
	release   Release
	token     string     // as received
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
	t := &untrusted{release: release, token: token}
	t.parsed, t.err = jws.Parse(token)
	if t.err != nil {
		return t.readLoose()
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
	if len(payload) > claims.MaxClaimsSize || json.Unmarshal(payload, &first) != nil {
		return
	}
	t.issuer = first.Issuer
}

// readLoose reads a token that jws.Parse refuses, with t.err.
func (t *untrusted) readLoose() *untrusted {
	if len(t.token) > jws.MaxTokenSize || strings.HasPrefix(strings.TrimSpace(t.token), "{") {
		return t
	}
	segments := strings.Split(t.token, ".")
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
		if decoded[i], err = base64.RawURLEncoding.DecodeString(withoutSpace(segment)); err != nil {
			return t
		}
		segments[i] = base64.RawURLEncoding.EncodeToString(decoded[i])
	}
	if !t.readHeader(decoded[0]) {
		return t
	}
	t.readClaims(decoded[1])
	if canonical := strings.Join(segments, "."); canonical != t.token {
		t.parsed, t.err = jws.Parse(canonical)
	}
	return t
}

// readHeader reads the key ID from a header without duplicate members, and reports whether
// that was possible. kube-apiserver treats an empty header as one without members, so it is
// the signature that it refuses.
func (t *untrusted) readHeader(header []byte) bool {
	if len(header) == 0 {
		return true
	}
	var algorithm string
	return object(member{"alg", text(&algorithm)}, member{"kid", text(&t.keyID)})("the header", header) == nil
}

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}
