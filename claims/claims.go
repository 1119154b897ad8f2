package claims

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// NumericDate is a claim that states a time (RFC 7519, section 2), in whole seconds.
// The zero value is an absent claim, which is not the same as the time 0.
type NumericDate struct {
	// Unix is the time in seconds since 1970-01-01T00:00:00Z, leap seconds ignored.
	Unix int64
	// Present says whether the claim is present. If not, Unix is 0.
	Present bool
}

// NewNumericDate returns the claim for a time, truncated to whole seconds as kube-apiserver
// does. The zero time gives an absent claim.
func NewNumericDate(t time.Time) NumericDate {
	if t.IsZero() {
		return NumericDate{}
	}
	return NumericDate{Unix: t.Unix(), Present: true}
}

// Time returns the claim's time in UTC, or the zero time if the claim is absent.
func (d NumericDate) Time() time.Time {
	if !d.Present {
		return time.Time{}
	}
	return time.Unix(d.Unix, 0).UTC()
}

// IsZero reports whether the claim is absent.
func (d NumericDate) IsZero() bool { return !d.Present }

// MarshalJSON writes the number, or null if the claim is absent.
func (d NumericDate) MarshalJSON() ([]byte, error) {
	if !d.Present {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, d.Unix, 10), nil
}

// Claims is the claim set of a service-account token: the registered claims of RFC
// 7519, section 4.1, and the private claim "kubernetes.io" (pkg/serviceaccount/claims.go
// in k8s.io/kubernetes). Nothing in it is verified. An empty string or slice is an absent
// claim: kube-apiserver never writes an empty one and does not distinguish the two.
type Claims struct {
	// Audiences is "aud". Kubernetes always writes an array, even for one audience; a
	// token with none is valid only for the API server.
	Audiences []string `json:"aud,omitempty"`
	// Expiry is "exp".
	Expiry NumericDate `json:"exp,omitzero"`
	// IssuedAt is "iat".
	IssuedAt NumericDate `json:"iat,omitzero"`
	// Issuer is "iss": the URL of the cluster's issuer.
	Issuer string `json:"iss,omitempty"`
	// ID is "jti": a UUID since Kubernetes 1.30.
	ID string `json:"jti,omitempty"`
	// Kubernetes is "kubernetes.io", or the zero value if the claim is absent. It is always
	// written.
	Kubernetes Private `json:"kubernetes.io"`
	// NotBefore is "nbf".
	NotBefore NumericDate `json:"nbf,omitzero"`
	// Subject is "sub": "system:serviceaccount:<namespace>:<name>".
	Subject string `json:"sub,omitempty"`
}

// subjectPrefix begins the subject of every service-account token.
const subjectPrefix = "system:serviceaccount:"

// MakeSubject returns the subject, which is also the username, of a service account
// (k8s.io/apiserver, authentication/serviceaccount/util.go).
func MakeSubject(namespace, name string) string {
	return subjectPrefix + namespace + ":" + name
}

// CredentialID returns the name that kube-apiserver gives a token in audit events and in
// a user's extra: "JTI=" followed by the ID. It is "" for a token without an ID.
func (c *Claims) CredentialID() string {
	if c.ID == "" {
		return ""
	}
	return "JTI=" + c.ID
}

// Ref identifies one object by name and UID. A UID of "" is left out of the claim: it
// means that the object was not known when the token was issued.
type Ref struct {
	// Name is the object's metadata.name.
	Name string `json:"name,omitempty"`
	// UID is the object's metadata.uid.
	UID string `json:"uid,omitempty"`
}

// Private is the claim "kubernetes.io" of a bound service-account token
// (pkg/serviceaccount/claims.go in k8s.io/kubernetes 1.36 and 1.37).
type Private struct {
	// Attestations are in a token of Kubernetes 1.37 that is bound to a webhook configuration;
	// nil if the claim is absent.
	Attestations *Attestations `json:"attestations,omitempty"`
	// MutatingWebhookConfiguration is the one that the token is bound to, or nil.
	MutatingWebhookConfiguration *Ref `json:"mutatingwebhookconfiguration,omitempty"`
	// Namespace is the service account's namespace, and that of the pod or Secret.
	Namespace string `json:"namespace,omitempty"`
	// Node is the node that the token is bound to or, if there is a Pod, the node that
	// the pod ran on, with a UID of "" if that Node did not exist. It is nil
	// without a node.
	Node *Ref `json:"node,omitempty"`
	// Pod is the pod that the token is bound to, or nil if it is bound to none.
	Pod *Ref `json:"pod,omitempty"`
	// Secret is the Secret that the token is bound to, or nil if it is bound to none.
	Secret *Ref `json:"secret,omitempty"`
	// ServiceAccount is the account that the token speaks for. A token without any other
	// reference is bound to nothing but this account. The claim is always
	// written, empty or not.
	ServiceAccount Ref `json:"serviceaccount"`
	// ValidatingWebhookConfiguration is the one that the token is bound to, or nil.
	ValidatingWebhookConfiguration *Ref `json:"validatingwebhookconfiguration,omitempty"`
	// WarnAfter is "warnafter": the time from which uses of the token are recorded as
	// stale. It is never a reason to refuse the token.
	WarnAfter NumericDate `json:"warnafter,omitzero"`
}

// Attestations are an API server's statements to an admission webhook: which API groups the client
// that presents the token may ask it to review.
type Attestations struct {
	// AdmissionReviewAPIGroups are API groups, of which kube-apiserver writes one; "*" stands
	// for all.
	AdmissionReviewAPIGroups []string `json:"admissionReviewAPIGroups,omitzero"`
}

// A binding is a token's reference to an object of a resource; ref is nil without one.
type binding struct {
	resource alive.Resource
	ref      *Ref
}

// bindings returns the references to objects, one for each resource.
func (k *Private) bindings() [6]binding {
	return [...]binding{
		{alive.ServiceAccount, &k.ServiceAccount}, {alive.Pod, k.Pod}, {alive.Secret, k.Secret}, {alive.Node, k.Node},
		{alive.ValidatingWebhookConfiguration, k.ValidatingWebhookConfiguration},
		{alive.MutatingWebhookConfiguration, k.MutatingWebhookConfiguration},
	}
}

// MaxClaimsSize is the maximum size of a claim set in bytes. kube-apiserver's own are about
// 500 bytes long; the rest is for audiences. Package jws reads a token with claims of this
// size.
const MaxClaimsSize = 32 << 10

// maxNumericDate is the latest time that a claim may state: the end of the year 9999, in
// Unix seconds.
const maxNumericDate = 253402300799

// Parse decodes a claim set strictly: one JSON object of at most [MaxClaimsSize] bytes
// in valid UTF-8, no duplicate member at any depth, no member that differs from another or
// from a known one only in case, times as whole numbers between 0 and the end of the year 9999,
// "aud" a string or an array of strings, no null. Unknown members are ignored, as RFC 7519,
// section 4 requires, but refused inside "kubernetes.io", where one may bind the token to an
// object that is never looked up; so are the flat claims of a legacy token. The errors are
// [CheckSize], [CheckEncoding], [CheckType], "claims-time" and, for such members,
// "private-claims".
//
// Parsing verifies nothing. The result shares no memory with the payload.
// Marshal(Parse(x)) is x if kube-apiserver wrote x.
func Parse(payload []byte) (*Claims, error) {
	if err := checkSize(payload); err != nil {
		return nil, err
	}
	p := parser{r: strictjson.NewReader(payload)}
	err := p.object(claimSet, true)
	if err == nil {
		err = p.r.End()
	}
	if err != nil {
		return nil, refusedWith(err)
	}
	return &p.claims, nil
}

func checkSize(payload []byte) error {
	if len(payload) > MaxClaimsSize {
		return &Error{Check: CheckSize, Got: strconv.Itoa(len(payload)) + " bytes", Want: "at most " + strconv.Itoa(MaxClaimsSize)}
	}
	return nil
}

// refusedWith turns an error of the reader into an Error with its check.
func refusedWith(err error) error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, strictjson.ErrType), errors.Is(err, strictjson.ErrRange), errors.Is(err, strictjson.ErrInteger):
		return &Error{Check: CheckType, Err: err}
	}
	return &Error{Check: CheckEncoding, Err: err}
}

// A parser reads one claim set.
type parser struct {
	r      *strictjson.Reader
	claims Claims
	ref    *Ref // the reference being read
}

// A member is a known member and how it is read.
type member struct {
	name string
	read func(*parser) error
}

// The members of a claim set, of "kubernetes.io" and of its objects. They are never changed.
var (
	claimSet = []member{
		{"iss", func(p *parser) error { return p.text(&p.claims.Issuer) }},
		{"sub", func(p *parser) error { return p.text(&p.claims.Subject) }},
		{"aud", (*parser).audiences},
		{"exp", func(p *parser) error { return p.date("exp", &p.claims.Expiry) }},
		{"nbf", func(p *parser) error { return p.date("nbf", &p.claims.NotBefore) }},
		{"iat", func(p *parser) error { return p.date("iat", &p.claims.IssuedAt) }},
		{"jti", func(p *parser) error { return p.text(&p.claims.ID) }},
		{"kubernetes.io", func(p *parser) error { return p.object(private, false) }},
		{"kubernetes.io/serviceaccount/namespace", (*parser).legacy},
		{"kubernetes.io/serviceaccount/secret.name", (*parser).legacy},
		{"kubernetes.io/serviceaccount/service-account.name", (*parser).legacy},
		{"kubernetes.io/serviceaccount/service-account.uid", (*parser).legacy},
	}
	private = []member{
		{"namespace", func(p *parser) error { return p.text(&p.claims.Kubernetes.Namespace) }},
		{"serviceaccount", func(p *parser) error { return p.reference(&p.claims.Kubernetes.ServiceAccount) }},
		{"pod", func(p *parser) error { return p.made(&p.claims.Kubernetes.Pod) }},
		{"secret", func(p *parser) error { return p.made(&p.claims.Kubernetes.Secret) }},
		{"node", func(p *parser) error { return p.made(&p.claims.Kubernetes.Node) }},
		{"warnafter", func(p *parser) error { return p.date("warnafter", &p.claims.Kubernetes.WarnAfter) }},
		{"validatingwebhookconfiguration", func(p *parser) error { return p.made(&p.claims.Kubernetes.ValidatingWebhookConfiguration) }},
		{"mutatingwebhookconfiguration", func(p *parser) error { return p.made(&p.claims.Kubernetes.MutatingWebhookConfiguration) }},
		{"attestations", func(p *parser) error {
			p.claims.Kubernetes.Attestations = &Attestations{}
			return p.object(attestations, false)
		}},
	}
	attestations = []member{
		{"admissionReviewAPIGroups", func(p *parser) (err error) {
			p.claims.Kubernetes.Attestations.AdmissionReviewAPIGroups, err = p.r.Strings()
			return err
		}},
	}
	reference = []member{
		{"name", func(p *parser) error { return p.text(&p.ref.Name) }},
		{"uid", func(p *parser) error { return p.text(&p.ref.UID) }},
	}
)

// object reads an object. An unknown member is skipped if others may be there, unless a reader
// that ignores case would recognize it.
func (p *parser) object(known []member, others bool) error {
	return p.r.Object(func(name []byte) error {
		for _, m := range known {
			if m.name == string(name) {
				return m.read(p)
			}
		}
		for _, m := range known {
			if strings.EqualFold(m.name, string(name)) {
				return &Error{Check: CheckEncoding, Got: "the member " + strconv.Quote(string(name)), Want: strconv.Quote(m.name)}
			}
		}
		if !others {
			return &Error{Check: checkPrivate, Got: "the member " + strconv.Quote(string(name)) + " inside kubernetes.io", Want: "a member of Kubernetes 1.37"}
		}
		return p.r.Skip()
	})
}

func (p *parser) text(to *string) (err error) {
	*to, err = p.r.String()
	return err
}

// legacy refuses the private claims of a token that kube-controller-manager writes into a Secret
// (pkg/serviceaccount/legacy.go in k8s.io/kubernetes 1.36): such a token never expires.
func (*parser) legacy() error {
	return &Error{Check: checkPrivate, Got: "claims of a legacy token", Want: "none"}
}

func (p *parser) reference(to *Ref) error {
	p.ref = to
	return p.object(reference, false)
}

// made reads an optional reference.
func (p *parser) made(to **Ref) error {
	*to = &Ref{}
	return p.reference(*to)
}

// audiences reads one string or an array of strings (RFC 7519, section 4.1.3).
func (p *parser) audiences() (err error) {
	if p.r.Type() != strictjson.StringType {
		p.claims.Audiences, err = p.r.Strings()
		return err
	}
	p.claims.Audiences = make([]string, 1)
	return p.text(&p.claims.Audiences[0])
}

func (p *parser) date(name string, to *NumericDate) error {
	n, err := p.r.Int64()
	if err != nil {
		return err
	}
	if n < 0 || n > maxNumericDate {
		return &Error{Check: checkTime, Got: name + " " + strconv.FormatInt(n, 10), Want: "0 to " + strconv.FormatInt(maxNumericDate, 10)}
	}
	*to = NumericDate{Unix: n, Present: true}
	return nil
}

// escapes turns the escapes of encoding/json into the escapes it wrote before Go 1.22. A
// backslash in the text is written as two, so it cannot begin any of the other escapes.
var escapes = strings.NewReplacer(`\\`, `\\`, `\b`, `\u0008`, `\f`, `\u000c`, `\ufffd`, "\ufffd")

// Marshal encodes the claims as kube-apiserver 1.36 and 1.37 encode them, byte for byte: members
// in the order of their names, absent ones left out, "aud" always an array, and strings
// with the escapes of Go's encoding/json before 1.22: \u003c, \u003e and \u0026 for the
// HTML characters, \u0008 and \u000c, \u2028 and \u2029. Bytes that are not UTF-8 become
// U+FFFD, as they do there. A claim set longer than [MaxClaimsSize] gives [CheckSize].
func (c *Claims) Marshal() ([]byte, error) {
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	payload = []byte(escapes.Replace(string(payload)))
	if err := checkSize(payload); err != nil {
		return nil, err
	}
	return payload, nil
}
