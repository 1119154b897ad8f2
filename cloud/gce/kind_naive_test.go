package gce_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// This file verifies tokens a second time, as plainly as can be, with the standard library
// alone.

var errNaive = naive(errors.New("refused"))

func naive(err error) error { return &attest.Error{Check: "naive", Err: err} }

// readNaively reads a token and verifies nothing.
func readNaively(token string) (*gce.Details, error) {
	d, _, err := openNaively(token)
	return d, err
}

// header is the header of a token.
type header struct{ Alg, Kid, Typ string }

// openNaively reads a token as leniently as encoding/json does, and notes which checks of
// the claims fail.
func openNaively(token string) (*gce.Details, map[attest.Check]bool, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || strings.ContainsAny(token, "\r\n") { // which encoding/base64 passes over
		return nil, nil, errNaive
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if err != nil {
		return nil, nil, naive(err)
	}
	var c struct {
		Aud, Iss, Sub, Azp, Email string
		Iat, Exp                  int64
		Nbf                       json.RawMessage
		Google                    struct {
			Engine struct {
				Created  int64    `json:"instance_creation_timestamp"`
				ID       string   `json:"instance_id"`
				Name     string   `json:"instance_name"`
				Project  string   `json:"project_id"`
				Number   uint64   `json:"project_number"`
				Licenses []string `json:"license_id"`
				Zone     string
			} `json:"compute_engine"`
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(payload)) // which looks at no trailing bytes
	if err := decoder.Decode(&c); err != nil {
		return nil, nil, naive(err)
	}
	e := c.Google.Engine
	id, _ := strconv.ParseUint(e.ID, 10, 64)
	var counts int64
	var noNumber error
	if c.Nbf != nil {
		counts, noNumber = strconv.ParseInt(string(c.Nbf), 10, 64)
	}
	label := regexp.MustCompile("^[a-zA-Z0-9.:-]+$")
	d := &gce.Details{Instance: oid.GCEInstance{Zone: e.Zone, ProjectNumber: e.Number, ProjectID: e.Project, InstanceID: id, InstanceName: e.Name},
		Created: time.Unix(e.Created, 0).UTC(), Licenses: e.Licenses, Subject: c.Sub, Email: c.Email, Audience: c.Aud,
		IssuedAt: time.Unix(c.Iat, 0).UTC(), Expires: time.Unix(c.Exp, 0).UTC()}
	return d, map[attest.Check]bool{
		refusal.Check("gce-future"):  counts > now.Unix()+60,
		refusal.Check("gce-issuer"):  c.Iss != gce.Issuer,
		refusal.Check("gce-claims"):  c.Azp != c.Sub || c.Sub == "" || c.Aud == "" || c.Iss == "" || c.Iat <= 0 || c.Exp <= 0 || noNumber != nil || counts < 0 || strings.Contains(string(payload), "\\u0000"),
		refusal.Check("gce-machine"): id == 0 || strconv.FormatUint(id, 10) != e.ID || e.Created <= 0 || e.Number == 0 || !label.MatchString(e.Zone) || !label.MatchString(e.Project) || !label.MatchString(e.Name),
	}, nil
}

// verifyNaively verifies a token, but for its audience, its project, and the checks that it
// is to forget.
func verifyNaively(token string, keys []*jws.Key, now time.Time, forget ...attest.Check) (*gce.Details, error) {
	d, failed, err := openNaively(token)
	if err != nil {
		return nil, err
	}
	end := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.Strict().DecodeString(token[end+1:])
	if err != nil {
		return nil, naive(err)
	}
	head, err := base64.RawURLEncoding.Strict().DecodeString(token[:strings.IndexByte(token, '.')])
	if err != nil {
		return nil, naive(err)
	}
	var h header
	if err := json.Unmarshal(head, &h); err != nil {
		return nil, naive(err)
	}
	digest := sha256.Sum256([]byte(token[:end]))
	failed[jws.Check("jws-signature")], failed[jws.CheckKeyID] = true, true
	for _, k := range keys {
		public, isRSA := k.Public().(*rsa.PublicKey)
		if k.KeyID() == h.Kid {
			failed[jws.CheckKeyID] = false
		}
		if isRSA && (k.KeyID() == h.Kid || slices.Contains(forget, jws.CheckKeyID)) && rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], signature) == nil {
			failed[jws.Check("jws-signature")] = false
		}
	}
	failed[jws.CheckAlgorithm] = h.Alg != "RS256"
	failed[jws.CheckHeader] = h.Typ != "JWT"
	failed[refusal.Check("gce-expired")] = !now.Before(d.Expires)
	failed[refusal.Check("gce-future")] = failed[refusal.Check("gce-future")] || d.IssuedAt.After(now.Add(time.Minute))
	failed[refusal.Check("gce-lifetime")] = !d.Expires.After(d.IssuedAt) || d.Expires.Sub(d.IssuedAt) > time.Hour
	for check, bad := range failed {
		if bad && !slices.Contains(forget, check) {
			return nil, naive(check)
		}
	}
	return d, nil
}

// TestWeakVersions has the plain verifier forget one check: what gets in then are vectors
// which that check is there for, and no others.
func TestWeakVersions(t *testing.T) {
	list, e, keys := loadVectors(t)
	gotIn := func(lenient bool, forget ...attest.Check) (names []string) {
		for _, v := range list {
			d, err := verifyNaively(string(v.Document), keys, e.Time, forget...)
			if err != nil {
				continue
			}
			bad := d.Audience != e.Audience && !slices.Contains(forget, refusal.Check("gce-audience")) ||
				!slices.Contains(e.Projects, d.Instance.ProjectID) && !slices.Contains(forget, refusal.Check("gce-project"))
			if !bad && v.Expect != "" && !(!lenient && strings.HasPrefix(v.Name, "payload-")) {
				names = append(names, v.Name)
			}
		}
		return names
	}
	for forget, want := range map[attest.Check][]string{
		"nothing":                     nil,
		refusal.Check("gce-audience"): {"claims-another-audience", "claims-the-audience-in-another-case"},
		refusal.Check("gce-issuer"):   {"claims-a-service-account-as-the-issuer", "claims-another-issuer", "claims-googles-other-issuer"},
		refusal.Check("gce-claims"):   {"claims-another-party", "claims-no-party", "claims-no-subject", "claims-not-before-a-text", "claims-not-before-null"},
		refusal.Check("gce-lifetime"): {"claims-a-second-too-long", "claims-the-end-of-53-bits", "claims-the-end-over-53-bits"},
		refusal.Check("gce-expired"):  {"claims-ended"},
		refusal.Check("gce-future"):   {"claims-more-than-a-minute-ahead", "claims-not-before-a-later-time"},
		refusal.Check("gce-project"):  {"claims-another-project", "claims-the-project-in-another-case"},
		jws.Check("jws-signature"):    {"token-a-key-of-ones-own-googles-kid", "token-a-key-that-the-token-brings", "token-the-kid-of-a-key-of-another-kind", "token-another-machines-claims", "token-no-signature", "token-the-signature-of-another-token", "token-half-a-signature"},
	} {
		got := gotIn(false, forget)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("without %s: got in: %q, want %q", forget, got, want)
		}
	}
	// A reader that takes what encoding/json takes has a second reading.
	if got, want := gotIn(true), []string{"payload-deep", "payload-googles-word-twice", "payload-in-two-cases", "payload-the-audience-twice", "payload-trailing-bytes", "payload-two-objects"}; !slices.Equal(got, want) {
		t.Errorf("with encoding/json: got in: %q, want %q", got, want)
	}
	// What makes a token a machine's.
	for _, name := range []string{"claims-no-word-of-googles", "claims-an-organisation-alone", "claims-the-machine-empty", "claims-the-machine-at-the-top"} {
		if got := gotIn(false, refusal.Check("gce-machine"), refusal.Check("gce-project")); !slices.Contains(got, name) {
			t.Errorf("without %s: %s is not in %q", refusal.Check("gce-machine"), name, got)
		}
	}
}

func valueOf(audience string) []byte {
	value, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(audience, "nodeattest:"))
	if err != nil {
		return nil // covers nothing
	}
	return value
}

func attestKey(t testing.TB) crypto.Signer {
	t.Helper()
	return testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}
