package gce

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// KeysURL is where Google publishes the keys of identity tokens, as a JWK set.
	KeysURL = "https://www.googleapis.com/oauth2/v3/certs"
	// issuer is the claim iss of every token.
	issuer = "https://accounts.google.com"
	// maxTokenSize is the length in bytes of the longest token that is read. Real ones are
	// about 1100 bytes long, plus a few for each licence.
	maxTokenSize = 8 << 10
	// maxLifetime is the longest time that a token may be good for.
	maxLifetime = time.Hour
	// leeway is how far Google's clock may be ahead of the control plane's.
	leeway = time.Minute
)

// The checks on a token, in addition to package jws' on its form and signature, and
// [attest.CheckQualifyingData] on what its audience carries.
const (
	// checkSize: the token is empty or longer than 8 KiB.
	checkSize refusal.Check = "gce-token-size"
	// checkClaims: the payload is not a JSON object, has a duplicate member, or a claim that
	// every machine's token has is missing or of another type.
	checkClaims refusal.Check = "gce-claims"
	// checkMachine: the token says nothing about a machine: the claims google.compute_engine
	// are missing, or one of them is not one that a machine can have. A service account's own
	// token is such a token.
	checkMachine refusal.Check = "gce-machine"
	// checkIssuer: the claim iss is not https://accounts.google.com.
	checkIssuer refusal.Check = "gce-issuer"
	// checkAudience: the token is for another audience.
	checkAudience refusal.Check = "gce-audience"
	// checkLifetime: the token ends before it begins, or is good for more than an hour.
	checkLifetime refusal.Check = "gce-lifetime"
	// checkExpired: the token has expired.
	checkExpired refusal.Check = "gce-expired"
	// checkFuture: the token was made, or counts, more than a minute in the future.
	checkFuture refusal.Check = "gce-future"
	// checkProject: the machine's project is not one of the configuration.
	checkProject refusal.Check = "gce-project"
)

// Details are the contents of a token, all of it Google's word. [attest.Result].Details
// contains them for this kind.
type Details struct {
	// Instance is the machine; Instance.Security is nil.
	Instance oid.GCEInstance
	// Created is when the machine was made, in whole seconds.
	Created time.Time
	// Licenses are the identifiers of the licences of the machine's images; nil if there are
	// none.
	Licenses []string
	// Subject is the unique ID of the machine's service account, and Email its address, or ""
	// if the token has none.
	Subject, Email string
	// Audience is the token's audience.
	Audience string
	// IssuedAt and Expires bound the time in which it is good, in whole seconds.
	IssuedAt, Expires time.Time

	issuer    string
	notBefore time.Time // IssuedAt, or nbf if that is later
}

// DetailsOf returns the contents of the token in a join of this kind, and nil for other kinds.
func DetailsOf(r *attest.Result) *Details {
	d, _ := r.Details.(*Details)
	return d
}

// Machine is the machine's identity, gce:<project ID>/<instance ID>.
func (d *Details) Machine() attest.Identity {
	return attest.Identity("gce:" + d.Instance.ProjectID + "/" + strconv.FormatUint(d.Instance.InstanceID, 10))
}

// VerifyToken verifies a token for an audience of the caller's, at the time now, and returns
// which machine asked for it. It is for use outside a join: a token is a bearer token, and
// anyone who has seen it can present it again until it expires, so the audience should be a
// value that is used only once. With [NewKind] the audience carries the challenge.
//
// config is as for [NewKind]. The errors have checks of package jws and of this package, and
// refusal.CheckConfig for config or an empty audience.
func VerifyToken(ctx context.Context, token, audience string, config KindConfig, now time.Time) (*Details, error) {
	p, err := newPlatform(config)
	if err != nil {
		return nil, err
	}
	if audience == "" {
		return nil, refusal.Config("audience", "", "one")
	}
	t, d, err := parse([]byte(token))
	if err != nil {
		return nil, err
	}
	if d.Audience != audience {
		return nil, checkAudience.Refuse(d.Audience, audience)
	}
	if err := p.check(d, now); err != nil {
		return nil, err
	}
	if _, err := t.VerifySignature(ctx, p.keys); err != nil {
		return nil, err
	}
	return d, nil
}

// parse reads a token and verifies nothing.
func parse(token []byte) (*jws.Token, *Details, error) {
	if len(token) == 0 || len(token) > maxTokenSize {
		return nil, nil, checkSize.Refuse(strconv.Itoa(len(token))+" bytes", "1 to "+strconv.Itoa(maxTokenSize))
	}
	t, err := jws.Parse(string(token))
	if err != nil {
		return nil, nil, err
	}
	switch {
	case t.Algorithm() != jws.RS256:
		return nil, nil, jws.CheckAlgorithm.Refuse(string(t.Algorithm()), string(jws.RS256))
	case t.KeyID() == "":
		return nil, nil, jws.CheckKeyID.Refuse("", "the ID of one of Google's keys")
	case t.Type() != jws.TypeJWT:
		return nil, nil, jws.CheckHeader.Refuse("typ "+refusal.Quote(t.Type()), jws.TypeJWT)
	}
	d, err := parseClaims(t.UnverifiedPayload())
	return t, d, err
}

// check checks the claims against the configuration and the clock.
func (p *platform) check(d *Details, now time.Time) error {
	switch lifetime := d.Expires.Sub(d.IssuedAt); {
	case d.issuer != issuer:
		return checkIssuer.Refuse(d.issuer, issuer)
	case lifetime <= 0 || lifetime > maxLifetime:
		return checkLifetime.Refuse(lifetime.String(), "up to "+maxLifetime.String())
	case !now.Before(d.Expires):
		return checkExpired.Refuse("a token until "+stamp(d.Expires), "one that is good at "+stamp(now))
	case now.Add(leeway).Before(d.notBefore):
		return checkFuture.Refuse("a token of "+stamp(d.IssuedAt)+" from "+stamp(d.notBefore), "one that is good at "+stamp(now))
	case !p.projects[d.Instance.ProjectID]:
		return checkProject.Refuse(d.Instance.ProjectID, "a project of the configuration")
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// members are the names of the members that were read.
type members map[string]bool

// read returns functions that read members as these do, and add their names to m.
func (m members) read(functions strictjson.Fields) strictjson.Fields {
	for name, read := range functions {
		functions[name] = func(r *strictjson.Reader) error {
			m[name] = true
			return read(r)
		}
	}
	return functions
}

// lack reports whether one of these was not read.
func (m members) lack(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return !m[name] })
}

// number reads an integer from 0 to 2^53 - 1.
func number(n *int64) func(*strictjson.Reader) error {
	return func(r *strictjson.Reader) (err error) {
		if *n, err = r.Int64(); err == nil && (*n < 0 || *n >= 1<<53) {
			err = errNumber
		}
		return err
	}
}

var errNumber = errors.New("got a number that is negative or over 53 bits")

// parseClaims reads the payload of a token. Members not named here are allowed.
func parseClaims(payload []byte) (*Details, error) {
	d, m := &Details{}, members{}
	var party, instanceID string
	var issuedAt, expires, notBefore, created, project int64
	engine := m.read(strictjson.Fields{
		"instance_creation_timestamp": number(&created), "instance_id": strictjson.Into(&instanceID), "instance_name": strictjson.Into(&d.Instance.InstanceName),
		"project_id": strictjson.Into(&d.Instance.ProjectID), "project_number": number(&project), "zone": strictjson.Into(&d.Instance.Zone),
		"license_id": func(r *strictjson.Reader) (err error) {
			d.Licenses, err = r.Strings()
			return err
		},
	})
	err := m.read(strictjson.Fields{
		"aud": strictjson.Into(&d.Audience), "iss": strictjson.Into(&d.issuer), "sub": strictjson.Into(&d.Subject), "azp": strictjson.Into(&party),
		"email": strictjson.Into(&d.Email), "iat": number(&issuedAt), "exp": number(&expires), "nbf": number(&notBefore), "google": strictjson.Fields{"compute_engine": engine.Read}.Read,
	}).Parse(payload)
	switch {
	case err != nil:
		return nil, &refusal.Error{Check: checkClaims, Got: "claims that cannot be read", Want: "those of an identity token", Err: err}
	case m.lack("aud", "azp", "exp", "iat", "iss", "sub"):
		return nil, checkClaims.Refuse("claims of which at least one is missing", "aud, azp, exp, iat, iss and sub")
	case d.Subject != party:
		return nil, checkClaims.Refuse("azp "+refusal.Quote(party), "sub, "+refusal.Quote(d.Subject))
	case m.lack("instance_creation_timestamp", "instance_id", "instance_name", "project_id", "project_number", "zone"):
		return nil, checkMachine.Refuse("google.compute_engine that is absent, or lacks a member",
			"a machine's token with format=full, which has instance_creation_timestamp, instance_id, instance_name, project_id, project_number and zone")
	}
	d.Created, d.IssuedAt, d.Expires = seconds(created), seconds(issuedAt), seconds(expires)
	d.notBefore = seconds(max(issuedAt, notBefore))
	d.Instance.ProjectNumber = uint64(project)
	if d.Instance.InstanceID, err = strconv.ParseUint(instanceID, 10, 64); err != nil || strconv.FormatUint(d.Instance.InstanceID, 10) != instanceID {
		return nil, checkMachine.Refuse("instance_id "+refusal.Quote(instanceID), "a decimal number")
	}
	if _, err := d.Instance.Marshal(); err != nil { // an AK certificate could name no such machine
		return nil, &refusal.Error{Check: checkMachine, Got: "a malformed machine", Want: "one that a certificate could name", Err: err}
	}
	return d, nil
}

func seconds(n int64) time.Time { return time.Unix(n, 0).UTC() }
