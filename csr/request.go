package csr

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// The only kind of object that a [Request] is a view of.
const (
	requestAPIVersion = "certificates.k8s.io/v1"
	requestKind       = "CertificateSigningRequest"
)

// Request has the fields that this package needs of a CertificateSigningRequest of
// certificates.k8s.io/v1, without any Kubernetes module. The client's fields stand apart
// from the server's: Spec is the client's, and so are the name, labels and
// annotations in Metadata, by which nothing in this SDK is decided. User, Status and the rest
// of Metadata are the server's, which never lets the client write them.
//
// A server of your own makes it with [Filed]. An API server's object is read with
// [ParseServerObject]. encoding/json does not read it, since the JSON of a client can state
// the server's half as well.
type Request struct {
	// APIVersion is "certificates.k8s.io/v1". It is empty for an item of a list.
	APIVersion string
	// Kind is "CertificateSigningRequest". It is empty for an item of a list.
	Kind string
	// Metadata is the object's identity.
	Metadata Metadata
	// Spec is the client's part.
	Spec Spec
	// User is who asks, as the server authenticated it.
	User User
	// Status has the decisions so far.
	Status Status

	kept *content // see KeepParsed
}

// User is who filed a request, as the server authenticated it: spec.username, uid, groups and
// extra of the object. Take nothing in it from the client's own statements.
type User struct {
	// Username is the name, such as "system:bootstrap:abcdef".
	Username string `json:"username,omitempty"`
	// UID is the user's UID if the authenticator gave one.
	UID string `json:"uid,omitempty"`
	// Groups are the user's groups, [AuthenticatedGroup] among them.
	Groups []string `json:"groups,omitempty"`
	// Extra holds what else the authenticator said, such as [ExtraCredentialID].
	Extra map[string][]string `json:"extra,omitempty"`
}

// Filed returns the request that a client has filed with a server that is not an API server
// of Kubernetes: the client's spec, the user, and the time. The server takes by from its own
// authentication and at from its own clock; at counts in whole seconds. The UID is a digest of all
// three, so that a decision about one request never fits another ([UnplacedDecision.For]). Nothing
// is shared with spec or by.
func Filed(spec *Spec, by User, at time.Time) *Request {
	r := &Request{Metadata: Metadata{CreationTimestamp: at.Truncate(time.Second)}, User: by}
	if spec != nil {
		r.Spec = *spec
		r.Spec.Request, r.Spec.Usages = slices.Clone(spec.Request), slices.Clone(spec.Usages)
		if seconds := spec.ExpirationSeconds; seconds != nil {
			r.Spec.ExpirationSeconds = new(*seconds)
		}
	}
	r.User.Groups, r.User.Extra = slices.Clone(by.Groups), maps.Clone(by.Extra)
	for key, values := range r.User.Extra {
		r.User.Extra[key] = slices.Clone(values)
	}
	digested := *r
	digested.Metadata.CreationTimestamp = r.Metadata.CreationTimestamp.UTC()
	if text, err := json.Marshal(digested); err == nil { // a time after the year 9999 has no text: it gets no UID, and no approval
		r.Metadata.UID = fmt.Sprintf("filed:%x", sha256.Sum256(text))
	}
	return r.KeepParsed()
}

// requestJSON is the JSON of the object.
type requestJSON struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   Metadata `json:"metadata"`
	Spec       struct {
		Spec
		User
	} `json:"spec"`
	Status Status `json:"status"`
}

// MarshalJSON writes the object as an API server does, with the user in its spec.
func (r Request) MarshalJSON() ([]byte, error) {
	o := requestJSON{APIVersion: r.APIVersion, Kind: r.Kind, Metadata: r.Metadata, Status: r.Status}
	o.Spec.Spec, o.Spec.User = r.Spec, r.User
	return json.Marshal(o)
}

// UnmarshalJSON refuses: who made the JSON, a server or a client, has to be said.
func (r *Request) UnmarshalJSON([]byte) error {
	return errors.New("csr: a Request is not read by encoding/json: use Filed for what a client sent, ParseServerObject for what an API server returned")
}

// Metadata is the part of a Kubernetes object's metadata that this SDK reads.
type Metadata struct {
	// Name is the object's name, chosen by the requester, or made by the API server if
	// GenerateName was given.
	Name string `json:"name,omitempty"`
	// GenerateName is the prefix from which the API server made Name.
	GenerateName string `json:"generateName,omitempty"`
	// UID distinguishes the object from one that was deleted and recreated under the same
	// name.
	UID string `json:"uid,omitempty"`
	// ResourceVersion changes with every write; a writer sends it back so that the
	// API server refuses a write over a state that the writer has not seen.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// CreationTimestamp is when the API server made the object, in whole seconds.
	// The zero time means that it has not been stored yet.
	CreationTimestamp time.Time `json:"creationTimestamp,omitzero"`
	// DeletionTimestamp is set once the object is being deleted; nil otherwise.
	DeletionTimestamp *time.Time `json:"deletionTimestamp,omitempty"`
	// Labels are set by the requester.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are set by the requester and prove nothing.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec is the client's part of a request. kube-apiserver keeps it unchanged for the object's life.
type Spec struct {
	// Request is the PEM that [Parse] reads: base64 in JSON, at most
	// 1 MiB once decoded.
	Request []byte `json:"request"`
	// SignerName is the signer, which determines the certificate's purpose; see [PurposeOf].
	SignerName string `json:"signerName"`
	// ExpirationSeconds is the lifetime asked for, in seconds; nil if none is.
	// kube-apiserver requires 600 or more.
	ExpirationSeconds *int32 `json:"expirationSeconds,omitempty"`
	// Usages are the key usages asked for, in the words of the API; see [Purpose.Usages].
	Usages []string `json:"usages,omitempty"`
}

// Spec returns the spec that a node files to get a certificate from a signer: the bundle as
// [Bundle.Marshal] writes it, the signer's name, the usages of the signer's [Purpose], with
// key encipherment for an RSA key, and the lifetime asked for: in seconds, 600 or more, or 0
// for none. The server adds the requester ([Filed]). Errors are as for Marshal,
// [ParsePKCS10] and [PurposeOf]; a lifetime that cannot be asked for gives
// [refusal.CheckConfig].
func (b *Bundle) Spec(signerName string, expirationSeconds int32) (*Spec, error) {
	return b.specUnder(signerName, signerName, expirationSeconds)
}

// HelloSpec is Spec for a hello: it is filed under the challenge signer of the bundle's
// provider ([SignerChallenge]), and otherwise states the same as the request for the certificate will
// say.
func (b *Bundle) HelloSpec(targetSigner string, expirationSeconds int32) (*Spec, error) {
	provider := ""
	if b != nil {
		provider, _, _ = strings.Cut(b.Provider, "/")
	}
	challenge, err := SignerChallenge(provider)
	if err != nil {
		return nil, err
	}
	return b.specUnder(challenge, targetSigner, expirationSeconds)
}

func (b *Bundle) specUnder(filedUnder, target string, expirationSeconds int32) (*Spec, error) {
	purpose, err := PurposeOf(target)
	if err != nil {
		return nil, err
	}
	if expirationSeconds != 0 && expirationSeconds < minExpirationSeconds {
		return nil, refusal.Config("expirationSeconds", strconv.Itoa(int(expirationSeconds)), "0, or 600 or more")
	}
	text, err := b.Marshal()
	if err != nil {
		return nil, err
	}
	request, err := ParsePKCS10(b.Request)
	if err != nil {
		return nil, err
	}
	_, encipherment := request.CSR.PublicKey.(*rsa.PublicKey)
	spec := &Spec{Request: text, SignerName: filedUnder, Usages: purpose.Usages(encipherment)}
	if expirationSeconds != 0 {
		spec.ExpirationSeconds = &expirationSeconds
	}
	return spec, nil
}

// Status has the decisions about a request.
type Status struct {
	// Conditions are the decisions so far, one of each type.
	Conditions []Condition `json:"conditions,omitempty"`
	// Certificate is the issued certificate in PEM: base64 in JSON, empty until it is
	// issued.
	Certificate []byte `json:"certificate,omitempty"`
}

// Condition is one decision about a request.
type Condition struct {
	// Type is ConditionApproved, ConditionDenied, ConditionFailed or a custom type.
	Type string `json:"type"`
	// Status is "True", "False" or "Unknown"; the first three types allow only "True".
	Status string `json:"status"`
	// Reason is one CamelCase word for machines.
	Reason string `json:"reason,omitempty"`
	// Message is for people.
	Message string `json:"message,omitempty"`
	// LastUpdateTime is when the condition was last written.
	LastUpdateTime time.Time `json:"lastUpdateTime,omitzero"`
	// LastTransitionTime is when Status last changed.
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
}

// ParseServerObject decodes the JSON of one CertificateSigningRequest. It refuses more than
// 4 MiB, an apiVersion or kind that is present but different, and anything after the object.
// The request inside is not read yet: [Policy.Check] does that.
//
// Not for a client's JSON. The object says who filed it and when, so only an API server's
// own answer counts; see [Filed]. Like encoding/json, ParseServerObject takes the last of two
// members with the same name and ignores the case of names.
func ParseServerObject(data []byte) (*Request, error) {
	if len(data) > maxRequestJSONSize {
		return nil, fmt.Errorf("csr: request object: got %d bytes of JSON, want at most %d", len(data), maxRequestJSONSize)
	}
	var o requestJSON
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("csr: request object: %w", err)
	}
	r := &Request{APIVersion: o.APIVersion, Kind: o.Kind, Metadata: o.Metadata, Spec: o.Spec.Spec, User: o.Spec.User, Status: o.Status}
	if r.APIVersion != "" && r.APIVersion != requestAPIVersion {
		return nil, fmt.Errorf("csr: request object: got apiVersion %s, want %s", refusal.Quote(r.APIVersion), requestAPIVersion)
	}
	if r.Kind != "" && r.Kind != requestKind {
		return nil, fmt.Errorf("csr: request object: got kind %s, want %s", refusal.Quote(r.Kind), requestKind)
	}
	return r.KeepParsed(), nil
}

// HasCondition reports whether the request has a condition of this type, whatever its
// status: kube-apiserver allows no status other than "True" for the types that decide, so
// another one is no reason to go on.
func (r *Request) HasCondition(conditionType string) bool {
	return r != nil && slices.ContainsFunc(r.Status.Conditions, func(c Condition) bool { return c.Type == conditionType })
}

// CredentialID returns the credential that the requester used, as the API server states it
// under [ExtraCredentialID]. It is "" unless there is exactly one.
func (r *Request) CredentialID() string {
	ids := r.User.Extra[ExtraCredentialID]
	if len(ids) != 1 {
		return ""
	}
	return ids[0]
}

// signerName returns the signer's name; r may be nil.
func (r *Request) signerName() string {
	if r == nil {
		return ""
	}
	return r.Spec.SignerName
}

// Parsed is a request whose content is read once, when it is first needed: however many
// policies, providers and verifiers look at one request, its PEM and its PKCS#10 request are
// parsed only once. [Request.Parsed] makes it. It is safe for concurrent use; no caller may
// change the request while it is in use.
type Parsed struct {
	request *Request
	content *content
}

// content holds the results of parsing one Spec.Request.
type content struct {
	text []byte // Spec.Request, or a copy of it if a request keeps the content

	bundleOnce sync.Once
	bundle     *Bundle
	bundleErr  error

	pkcs10Once sync.Once
	pkcs10     *PKCS10
	pkcs10Err  error
}

// KeepParsed makes r keep the results of [Request.Parsed], so that later calls of Parsed do not
// parse again unless Spec.Request has changed. It returns r. [Filed] and [ParseServerObject] call
// it. It writes to r, which no other goroutine may use meanwhile.
func (r *Request) KeepParsed() *Request {
	if len(r.Spec.Request) <= maxBundleSize { // a longer text is refused by its size
		r.kept = &content{text: slices.Clone(r.Spec.Request)}
	}
	return r
}

// Parsed returns the request, to be read once. Nothing is parsed here: [Policy.Check] reports
// parse errors after it has left alone the requests of other controllers.
func (r *Request) Parsed() *Parsed {
	switch {
	case r == nil:
		return new(Parsed)
	case r.kept != nil && bytes.Equal(r.kept.text, r.Spec.Request):
		return &Parsed{r, r.kept}
	}
	return &Parsed{r, &content{text: r.Spec.Request}}
}

// Request returns the object that was filed, or nil.
func (p *Parsed) Request() *Request {
	if p == nil {
		return nil
	}
	return p.request
}

// Bundle returns the result of [Parse] for Spec.Request, with its errors. All callers share it: do not
// change it.
func (p *Parsed) Bundle() (*Bundle, error) {
	if p.Request() == nil {
		return nil, noRequest()
	}
	c := p.content
	c.bundleOnce.Do(func() { c.bundle, c.bundleErr = Parse(c.text) })
	return c.bundle, c.bundleErr
}

// PKCS10 returns a copy of the result of [ParsePKCS10] for the request in the bundle, with its
// errors and the errors of [Parsed.Bundle].
func (p *Parsed) PKCS10() (*PKCS10, error) {
	_, shared, err := p.read()
	if err != nil {
		return nil, err
	}
	return shared.clone(), nil
}

// read returns the bundle and the PKCS10 that every [Checked] of this request refers to. The PKCS10
// never leaves the package.
func (p *Parsed) read() (*Bundle, *PKCS10, error) {
	bundle, err := p.Bundle()
	if err != nil {
		return nil, nil, err
	}
	c := p.content
	c.pkcs10Once.Do(func() { c.pkcs10, c.pkcs10Err = ParsePKCS10(bundle.Request) })
	return bundle, c.pkcs10, c.pkcs10Err
}

// der returns the PKCS#10 request that kube-apiserver reads in Spec.Request: the first
// block, whatever is around it, or nil. p has a request.
func (p *Parsed) der() []byte {
	if bundle, err := p.Bundle(); err == nil {
		return bundle.Request
	}
	if block, _ := pem.Decode(p.content.text); block != nil {
		return block.Bytes
	}
	return nil
}

func noRequest() error { return Errors{{Check: checkNotChecked, Got: "no request"}} }
