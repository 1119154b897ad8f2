package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// ParseClaims decodes a claim set with the verdict of kube-apiserver 1.36, whose
// decoder (go-jose v2) takes more than [claims.Parse]: times with a fraction or an exponent,
// cut towards zero, also those that lie beyond int64; names that differ in case; text
// that is no UTF-8, with U+FFFD in place of what is not; null for all but "aud". A name
// twice, and another type, are refused by both. The API server's cap on the size of a
// token stands in its HTTP server; here it is [claims.MaxClaimsSize]. The errors are
// [claims.CheckSize], [claims.CheckEncoding] and [claims.CheckType].
//
// It serves those who must agree with the API server. Everyone else calls Parse.
func ParseClaims(payload []byte) (*claims.Claims, error) {
	c, err := claims.Parse(payload)
	if err == nil || errors.Is(err, claims.CheckSize) {
		return c, err
	}
	return parseLenient(payload)
}

// The names of the members.
const (
	memberPrivate          = "kubernetes.io"
	memberLegacyNamespace  = "kubernetes.io/serviceaccount/namespace"
	memberLegacySecret     = "kubernetes.io/serviceaccount/secret.name"
	memberLegacyAccount    = "kubernetes.io/serviceaccount/service-account.name"
	memberLegacyAccountUID = "kubernetes.io/serviceaccount/service-account.uid"
)

func parseLenient(payload []byte) (*claims.Claims, error) {
	m, err := members(payload)
	if err != nil {
		return nil, err
	}
	c := &claims.Claims{}
	d := lenient{m: m}
	d.text("iss", &c.Issuer)
	d.text("sub", &c.Subject)
	d.text("jti", &c.ID)
	d.audiences(&c.Audiences)
	d.date("exp", &c.Expiry)
	d.date("nbf", &c.NotBefore)
	d.date("iat", &c.IssuedAt)
	d.object(memberPrivate, func(d *lenient) {
		k := &c.Kubernetes
		d.text("namespace", &k.Namespace)
		d.object("serviceaccount", func(d *lenient) { d.ref(&k.ServiceAccount) })
		d.reference("pod", &k.Pod)
		d.reference("secret", &k.Secret)
		d.reference("node", &k.Node)
		d.date("warnafter", &k.WarnAfter)
	})
	l := claims.LegacyPrivate{}
	d.text(memberLegacyNamespace, &l.Namespace)
	d.text(memberLegacySecret, &l.SecretName)
	d.text(memberLegacyAccount, &l.ServiceAccountName)
	d.text(memberLegacyAccountUID, &l.ServiceAccountUID)
	for _, name := range [...]string{memberLegacyNamespace, memberLegacySecret, memberLegacyAccount, memberLegacyAccountUID} {
		if _, ok := m[name]; ok {
			c.Legacy = &l
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	return c, nil
}

// members splits a JSON object into its members, none of them twice. JSON null has none.
func members(object []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(object) {
		return nil, &Error{Check: claims.CheckEncoding, Got: "no JSON", Want: "one JSON object"}
	}
	if bytes.Equal(bytes.TrimSpace(object), []byte("null")) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(object)) // it finds no fault that Valid did not
	if token, err := d.Token(); token != json.Delim('{') {
		return nil, &Error{Check: claims.CheckType, Got: string(object), Want: "an object", Err: err}
	}
	m := make(map[string]json.RawMessage)
	for d.More() {
		token, err := d.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err := errors.Join(err, d.Decode(&value)); err != nil {
			return nil, &Error{Check: claims.CheckEncoding, Err: err}
		}
		if _, twice := m[name]; twice {
			return nil, &Error{Check: claims.CheckEncoding, Got: "the member " + strconv.Quote(refusal.Text(name)) + " again", Want: "each once"}
		}
		m[name] = value
	}
	return m, nil
}

// A lenient decoder takes members of one object by name. Its first error stays.
type lenient struct {
	m   map[string]json.RawMessage
	err error
}

// value returns a member that is there and not null.
func (d *lenient) value(name string) ([]byte, bool) {
	v, ok := d.m[name]
	return v, ok && d.err == nil && string(v) != "null"
}

func (d *lenient) fail(name string, got []byte, want string) {
	d.err = &Error{Check: claims.CheckType, Got: name + " " + refusal.Text(string(got)), Want: want}
}

func (d *lenient) text(name string, to *string) {
	if v, ok := d.value(name); ok && json.Unmarshal(v, to) != nil {
		d.fail(name, v, "a string")
	}
}

// date reads a number of any form. A value that does not fit int64 becomes what this
// platform's conversion makes of it, as in the API server.
func (d *lenient) date(name string, to *claims.NumericDate) {
	v, ok := d.value(name)
	if !ok {
		return
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		d.fail(name, v, "a number")
		return
	}
	*to = claims.NumericDate{Unix: int64(f), Present: true}
}

func (d *lenient) audiences(to *[]string) {
	v, ok := d.m["aud"]
	if !ok || d.err != nil {
		return
	}
	var one *string
	if v[0] == '"' && json.Unmarshal(v, &one) == nil {
		*to = []string{*one}
		return
	}
	var list []*string
	if v[0] != '[' || json.Unmarshal(v, &list) != nil {
		d.fail("aud", v, "a string or an array of strings")
		return
	}
	*to = make([]string, 0, len(list))
	for _, s := range list {
		if s == nil {
			d.fail("aud", v, "a string or an array of strings")
			return
		}
		*to = append(*to, *s)
	}
}

func (d *lenient) object(name string, read func(*lenient)) {
	v, ok := d.value(name)
	if !ok {
		return
	}
	m, err := members(v)
	if err != nil {
		d.err = err
		return
	}
	inner := lenient{m: m}
	read(&inner)
	d.err = inner.err
}

func (d *lenient) reference(name string, to **claims.Ref) {
	d.object(name, func(d *lenient) {
		*to = &claims.Ref{}
		d.ref(*to)
	})
}

func (d *lenient) ref(to *claims.Ref) {
	d.text("name", &to.Name)
	d.text("uid", &to.UID)
}
