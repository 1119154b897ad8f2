package claims

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// MaxClaimsSize is the most bytes that a claim set may have. kube-apiserver's own are
// about 500 bytes long; audiences make up the rest. A token with claims of this size is one
// that package jws reads.
const MaxClaimsSize = 32 << 10

// MaxNumericDate is the last time that a claim may state: the end of the year 9999 in
// Unix seconds.
const MaxNumericDate = 253402300799

// The names of the members.
const (
	memberPrivate          = "kubernetes.io"
	memberLegacyNamespace  = "kubernetes.io/serviceaccount/namespace"
	memberLegacySecret     = "kubernetes.io/serviceaccount/secret.name"
	memberLegacyAccount    = "kubernetes.io/serviceaccount/service-account.name"
	memberLegacyAccountUID = "kubernetes.io/serviceaccount/service-account.uid"
)

// Parse decodes a claim set strictly: one JSON object of at most [MaxClaimsSize] bytes
// in valid UTF-8, no member twice at any depth, none that differs from another or from a
// known one only in case, times as whole numbers between 0 and [MaxNumericDate], "aud"
// a string or an array of strings, no null. Members that are not known are passed over,
// as RFC 7519, section 4 has it. The errors are [CheckSize], [CheckEncoding],
// [CheckType] and [CheckTime].
//
// Nothing is verified by parsing. The result shares no memory with the payload.
// Marshal(Parse(x)) is x where kube-apiserver wrote x.
func Parse(payload []byte) (*Claims, error) {
	if err := checkSize(payload); err != nil {
		return nil, err
	}
	p := parser{r: strictjson.NewReader(payload)}
	c := &p.claims
	err := p.r.Object(p.claim)
	if err == nil {
		err = p.r.End()
	}
	if err != nil {
		return nil, refusedWith(err)
	}
	return c, nil
}

func checkSize(payload []byte) error {
	if len(payload) > MaxClaimsSize {
		return &Error{Check: CheckSize, Got: strconv.Itoa(len(payload)) + " bytes", Want: "at most " + strconv.Itoa(MaxClaimsSize)}
	}
	return nil
}

// refusedWith names the check for an error of the reader.
func refusedWith(err error) error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, strictjson.ErrType), errors.Is(err, strictjson.ErrRange):
		return &Error{Check: CheckType, Err: err}
	}
	return &Error{Check: CheckEncoding, Err: err}
}

// A parser is pulled through one claim set.
type parser struct {
	r      *strictjson.Reader
	claims Claims
}

func (p *parser) claim(name []byte) (err error) {
	c := &p.claims
	switch string(name) {
	case "iss":
		c.Issuer, err = p.r.String()
	case "sub":
		c.Subject, err = p.r.String()
	case "aud":
		c.Audiences, err = p.audiences()
	case "exp":
		c.Expiry, err = p.date("exp")
	case "nbf":
		c.NotBefore, err = p.date("nbf")
	case "iat":
		c.IssuedAt, err = p.date("iat")
	case "jti":
		c.ID, err = p.r.String()
	case memberPrivate:
		err = p.r.Object(p.private)
	case memberLegacyNamespace:
		p.legacy().Namespace, err = p.r.String()
	case memberLegacySecret:
		p.legacy().SecretName, err = p.r.String()
	case memberLegacyAccount:
		p.legacy().ServiceAccountName, err = p.r.String()
	case memberLegacyAccountUID:
		p.legacy().ServiceAccountUID, err = p.r.String()
	default:
		return p.skip(name, "iss", "sub", "aud", "exp", "nbf", "iat", "jti", memberPrivate,
			memberLegacyNamespace, memberLegacySecret, memberLegacyAccount, memberLegacyAccountUID)
	}
	return err
}

// legacy returns the legacy claims, which are there from the first of them on.
func (p *parser) legacy() *LegacyPrivate {
	if p.claims.Legacy == nil {
		p.claims.Legacy = &LegacyPrivate{}
	}
	return p.claims.Legacy
}

func (p *parser) private(name []byte) (err error) {
	k := &p.claims.Kubernetes
	switch string(name) {
	case "namespace":
		k.Namespace, err = p.r.String()
	case "serviceaccount":
		err = p.ref(&k.ServiceAccount)
	case "pod":
		k.Pod = &Ref{}
		err = p.ref(k.Pod)
	case "secret":
		k.Secret = &Ref{}
		err = p.ref(k.Secret)
	case "node":
		k.Node = &Ref{}
		err = p.ref(k.Node)
	case "warnafter":
		k.WarnAfter, err = p.date("warnafter")
	default:
		return p.skip(name, "namespace", "serviceaccount", "pod", "secret", "node", "warnafter")
	}
	return err
}

func (p *parser) ref(ref *Ref) error {
	return p.r.Object(func(name []byte) (err error) {
		switch string(name) {
		case "name":
			ref.Name, err = p.r.String()
		case "uid":
			ref.UID, err = p.r.String()
		default:
			return p.skip(name, "name", "uid")
		}
		return err
	})
}

// skip passes over a member that is not known, unless another reader, one that takes no
// heed of case, would know it.
func (p *parser) skip(name []byte, known ...string) error {
	for _, k := range known {
		if bytes.EqualFold(name, []byte(k)) {
			return &Error{Check: CheckEncoding, Got: "the member " + strconv.Quote(string(name)), Want: strconv.Quote(k)}
		}
	}
	return p.r.Skip()
}

// audiences reads one string or an array of strings (RFC 7519, section 4.1.3).
func (p *parser) audiences() ([]string, error) {
	if p.r.Kind() != strictjson.StringKind {
		return p.r.Strings()
	}
	one, err := p.r.String()
	return []string{one}, err
}

func (p *parser) date(name string) (NumericDate, error) {
	n, err := p.r.Int64()
	if err != nil {
		return NumericDate{}, err
	}
	if n < 0 || n > MaxNumericDate {
		return NumericDate{}, &Error{Check: CheckTime, Got: name + " " + strconv.FormatInt(n, 10), Want: "0 to " + strconv.FormatInt(MaxNumericDate, 10)}
	}
	return NumericDate{Unix: n, Present: true}, nil
}
