package tpmcert

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
)

// asListed reads an identity as a list's is read, on a road with the grammars.
func asListed(id attest.Identity) (attest.Identity, error) {
	return (&attest.OpenRoad{Identities: Grammars()}).ParseIdentity(id)
}

// The identities that AK certificates state have one spelling each.
func TestGrammars(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	for _, id := range []attest.Identity{"ak:sha256:" + attest.Identity(digest), "othername:1.2.3:MAA", "othername:ca-1.example/1.2.3:MAA",
		"gce:my-project-1/1", "gce:eu0:project/1", "gce:p/1", "gce:example.com:p/18446744073709551615", "hwserial:a/STM%20:1A:4D", "hwserial:a-1.b/%00%FF", "chassis:a/P-1/S", "chassis:a/p%2Fq/PID:x%20SN:y"} {
		t.Run(string(id), func(t *testing.T) {
			if got, err := asListed(id); err != nil || got != id {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	for _, id := range []string{"", "x:y", "ek:sha256:" + digest, "azure:a/b", "aws:aws/us-east-2/i-0123456789abcdef0", "ak:" + digest, "AK:sha256:" + digest,
		"gce:p", "gce:project", "gce:/1", "gce:p/", "gce:p/x", "gce:p/01", "gce:p/-1", "gce:p/+1", "gce:p/18446744073709551616", "gce:p/1/2", "GCE:p/1", "gce:p/0", "gce:123456789012/1", "gce:Project/1", "gce:1project/1", "gce:-p/1", "gce:p_q/1",
		"hwserial:x", "hwserial:/x", "hwserial:A/x", "hwserial:a/", "hwserial:a/x/y", "hwserial:a/%", "hwserial:a/%2", "hwserial:a/%41", "hwserial:a/%2f", "hwserial:a/\x7f", "hwserial:a/ä",
		"chassis:a/x", "chassis:a/x/", "chassis:a//y", "chassis:/x/y", "chassis:a/x/y/z", "chassis:a/x/%zz", "chassis:a/x,y/z", "chassis:a/P-1/To%20be%20filled%20by%20O.E.M.", "chassis:a/P-1/0000", "chassis:a/P-1/N%2FA", "hwserial:a/%00%00",
		"othername:1.2.3", "othername:CA/1.2.3:MAA"} {
		t.Run("not "+id, func(t *testing.T) {
			if got, err := asListed(attest.Identity(id)); !errors.Is(err, attest.CheckIdentity) || got != "" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	for _, g := range Grammars() {
		if g.Parse == nil {
			continue
		}
		if id, err := g.Parse("ek:sha256:" + attest.Identity(digest)); !errors.Is(err, attest.CheckIdentity) || id != "" {
			t.Errorf("%s reads an identity of another kind: %q, %v", g.Kind, id, err)
		}
	}
}

// Identities from certificates are written as in a list of machines.
func TestIdentitiesHaveGrammars(t *testing.T) {
	kinds := map[string]bool{}
	for _, g := range Grammars() {
		kinds[g.Kind] = true
	}
	for _, want := range []string{AKIdentityKind, "othername", "gce", "hwserial", "chassis"} {
		if !kinds[want] {
			t.Errorf("no grammar of %s", want)
		}
	}
	if len(kinds) != 5 {
		t.Errorf("grammars of %v", kinds)
	}
}
