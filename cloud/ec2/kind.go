package ec2

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/refusal"
)

// Provider is the name of this kind of evidence in signer names and, followed by "/v1", in the
// block KUBELET AUTHENTICATOR ATTESTATION PROVIDER.
const Provider = "ec2"

// Checks on the account, role and instance of evidence.
const (
	// checkAccount: the document's account has no role on the list, or the credentials are of
	// another account than the document.
	checkAccount refusal.Check = "ec2-account"
	// checkPartition: no role on the list is of the partition of the document's region, or the
	// credentials are of another one.
	checkPartition refusal.Check = "ec2-partition"
	// checkRole: the credentials' role is not on the list.
	checkRole refusal.Check = "ec2-role"
	// checkSession: the session of the role does not have the name of the document's instance.
	checkSession refusal.Check = "ec2-session"
)

// KindConfig configures the kind. Certificates and Roles are required.
type KindConfig struct {
	// Certificates verify identity documents. They are of the regions whose instances
	// may join; see [awsid.ParseCertificates]. The map is copied.
	Certificates awsid.Certificates
	// Roles are the roles of the instances that may join, each with its partition and account:
	// arn:aws:iam::123456789012:role/node. A path before the name is allowed, and not compared:
	// an account has each name once. A principal that may assume one of these roles otherwise than as an
	// instance of EC2 can pose as each of its machines: the role's trust policy names
	// ec2.amazonaws.com and no other principal. The slice is copied.
	Roles []string
	// Transport sends the requests to STS, always over https and to the host of the document's
	// region; nil means one with the system's roots and the proxy that the environment names
	// (net/http.ProxyFromEnvironment). Of one of its own, redirects are not followed either, and
	// at most four requests are under way at once, each for ten seconds.
	Transport http.RoundTripper
}

// NewKind makes the control plane's side of the kind of evidence. The join holds the
// inventory against the machine's identity: if the machine's provider ID there is one of a cloud, it must be
// aws:///<zone>/<instance ID> with the document's instance and a zone of its region, or none. The
// error matches [refusal.CheckConfig] and names the field.
func NewKind(config KindConfig) (*document.Kind, error) {
	p, err := newPlatform(config)
	if err != nil {
		return nil, err
	}
	return kindOf(p)
}

// kindOf does not let trust on first use accept the kind.
func kindOf(p document.Platform) (*document.Kind, error) {
	return document.NewKind(document.KindConfig{Provider: Provider, Identities: []attest.Grammar{nitro.Grammar()}, ValueSize: valueSize, Platform: p,
		ManyIdentities: "a principal that may assume a role chooses the machine"})
}

// platform is the [document.Platform] of Amazon EC2.
type platform struct {
	certificates awsid.Certificates
	roles        []caller // without sessions
	sts          *sts
}

func newPlatform(config KindConfig) (*platform, error) {
	switch {
	case len(config.Certificates) == 0:
		return nil, refusal.Config("Certificates", "", "those of the regions whose instances may join")
	case len(config.Roles) == 0:
		return nil, refusal.Config("Roles", "", "the ARNs of the roles of the instances that may join")
	}
	for region, certificate := range config.Certificates {
		if _, err := endpointOf(region); err != nil || certificate == nil {
			return nil, refusal.Config("Certificates", refusal.Quote(region), "regions whose endpoint of STS is known, each with a certificate")
		}
	}
	p := &platform{certificates: maps.Clone(config.Certificates), sts: newSTS(config.Transport)}
	for _, arn := range config.Roles {
		role, ok := parseRole(arn)
		if !ok {
			return nil, refusal.Config("Roles", refusal.Quote(arn), "arn:<partition>:iam::<account>:role/<name>")
		}
		p.roles = append(p.roles, *role)
	}
	return p, nil
}

// shown is evidence that has been read, and not verified.
type shown struct {
	document *awsid.Document
	pkcs7    []byte
	endpoint *endpoint
	request  *signedRequest
}

// Read reads evidence and verifies nothing.
func (p *platform) Read(data []byte) (*document.Claims, error) {
	s, err := p.read(data)
	if err != nil {
		return nil, err
	}
	return s.claims(s.document)
}

func (p *platform) read(data []byte) (*shown, error) {
	e, err := parseEvidence(data)
	if err != nil {
		return nil, err
	}
	s := &shown{pkcs7: e.document}
	if s.document, err = awsid.ParseInsecure(e.document); err != nil {
		return nil, err
	}
	if s.endpoint, err = endpointOf(s.document.Region); err != nil {
		return nil, err
	}
	if err := p.checkListed(&caller{partition: s.endpoint.partition, account: s.document.AccountID}); err != nil {
		return nil, err
	}
	s.request, err = readRequest(&e.request, s.endpoint)
	return s, err
}

// checkListed checks that the list has a role of this partition and this account and, if the caller
// has a role, that the list has that one.
func (p *platform) checkListed(c *caller) error {
	for _, part := range []struct {
		check refusal.Check
		got   string
		of    func(c *caller) [3]string
	}{
		{checkPartition, c.partition, func(c *caller) [3]string { return [3]string{c.partition} }},
		{checkAccount, c.account, func(c *caller) [3]string { return [3]string{c.partition, c.account} }},
		{checkRole, c.role, func(c *caller) [3]string { return [3]string{c.partition, c.account, c.role} }},
	} {
		same := func(listed caller) bool { return part.of(&listed) == part.of(c) }
		if part.got != "" && !slices.ContainsFunc(p.roles, same) {
			return part.check.Refuse(part.got, "that of a role of the configuration")
		}
	}
	return nil
}

// Verify verifies the document, and asks STS about the request.
func (p *platform) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	s, err := p.read(data)
	if err != nil {
		return nil, err
	}
	if err := s.request.checkAge(q.Now); err != nil {
		return nil, err
	}
	if err := q.Budget.Signature(ctx); err != nil {
		return nil, err
	}
	d, err := awsid.Verify(s.pkcs7, p.certificates, q.Now)
	if err != nil {
		return nil, err
	}
	if err := q.Budget.Work(ctx, maxAnswer); err != nil {
		return nil, err
	}
	c, err := p.sts.caller(ctx, s.request, s.endpoint)
	if err != nil {
		return nil, err
	}
	if err := p.checkCaller(c, d, s.endpoint); err != nil {
		return nil, err
	}
	claims, err := s.claims(d)
	if err == nil {
		claims.Facts = append(claims.Facts, attest.Fact{Standing: attest.Asserted, Name: "role", Value: c.role})
	}
	return claims, err
}

// checkCaller checks that the signer is the document's instance, with a role of the list.
func (p *platform) checkCaller(c *caller, d *awsid.Document, e *endpoint) error {
	switch {
	case c.partition != e.partition:
		return checkPartition.Refuse(c.partition, "that of the document, "+e.partition)
	case c.account != d.AccountID:
		return checkAccount.Refuse(c.account, "that of the document, "+d.AccountID)
	}
	if err := p.checkListed(c); err != nil {
		return err
	}
	if c.session != d.InstanceID {
		return checkSession.Refuse("a session "+refusal.Quote(c.session), "the document's instance, "+d.InstanceID)
	}
	return nil
}

// claims returns the claims of evidence: its document and the header of its request.
func (s *shown) claims(d *awsid.Document) (*document.Claims, error) {
	machine, err := nitro.Identity(d.Region, d.InstanceID)
	if err != nil {
		return nil, err
	}
	return &document.Claims{Machine: machine, Value: s.request.value, Details: d, Facts: []attest.Fact{
		{Standing: attest.Asserted, Name: "account", Value: d.AccountID},
		{Standing: attest.Asserted, Name: "image", Value: refusal.OrNothing(refusal.Text(d.ImageID))},
		{Standing: attest.Asserted, Name: "started", Value: stamp(d.PendingTime)},
	}}, nil
}
