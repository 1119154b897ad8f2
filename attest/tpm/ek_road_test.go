package tpm_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// everyEK has the EKs that tpmsim certifies on the simulator.
func everyEK() tpmsim.Options {
	return tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.RSA2048, tpmsim.P256, tpmsim.P384}}
}

func ekOrigins() map[string]tpmkind.EKOrigin {
	return map[string]tpmkind.EKOrigin{"RSA-2048": tpmkind.EKRSA2048(), "P-256": tpmkind.EKP256(), "P-384": tpmkind.EKHigh(3)}
}

// Every EK opens the road for every AK, from hello to certificate.
func TestRoadEKOnTheSimulator(t *testing.T) {
	testRoadEK(t, tpmsim.New(t, everyEK()), ekOrigins())
}

func TestRoadEKOnSwtpm(t *testing.T) {
	device, origins := swtpmWithEveryEK(t)
	testRoadEK(t, device, origins)
}

// swtpmWithEveryEK has one EK more than the simulator.
func swtpmWithEveryEK(t *testing.T) (*tpmsim.TPM, map[string]tpmkind.EKOrigin) {
	options, origins := everyEK(), ekOrigins()
	options.EKs = append(options.EKs, tpmsim.RSA3072)
	origins["RSA-3072"] = tpmkind.EKHigh(6)
	return tpmsim.Swtpm(t, options), origins
}

func testRoadEK(t *testing.T, device *tpmsim.TPM, origins map[string]tpmkind.EKOrigin) {
	ctx := context.Background()
	eks, aks := slices.Sorted(maps.Keys(origins)), slices.Sorted(maps.Keys(akTemplates()))
	for e, ekName := range eks {
		for a, akName := range aks {
			// Each key is in some pair; a TPM takes long to make the keys of all of them.
			if (e+a)%len(aks) != 0 && os.Getenv("NODEATTEST_LONG") != "1" {
				continue
			}
			ek, template := origins[ekName], akTemplates()[akName]
			node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: ek,
				AK: tpmkind.AKSource{Template: template}, TPMKey: tpmkey.ECDSAP256})
			plane := attesttest.NewControlPlane(t, node)
			request, err := plane.Evidence(ctx, node)
			if err != nil {
				t.Fatal(ekName, akName, err)
			}
			r, err := plane.Verifier.Verify(ctx, request)
			if err != nil {
				t.Fatal(ekName, akName, err)
			}
			if r.Road != attest.RoadEK || r.Machine.Kind() != "ek" || r.Machine != tpmkind.DetailsOf(r).EK.Identity || r.MachineKey != tpmkind.DetailsOf(r).EK.Digest {
				t.Errorf("%s, %s: road %s, machine %s, EK %s", ekName, akName, r.Road, r.Machine, tpmkind.DetailsOf(r).EK.Identity)
			}
			if len(tpmkind.DetailsOf(r).Chain) != 3 || tpmkind.DetailsOf(r).EK.Source != tpmcert.EKFromCertificate || !r.TPMResident || !tpmkind.DetailsOf(r).Clock.Plain || !bytes.Equal(tpmkind.DetailsOf(r).AKName, tpmkind.DetailsOf(r).AKPublic.Name()) {
				t.Errorf("%s, %s: chain of %d, %s, resident %v", ekName, akName, len(tpmkind.DetailsOf(r).Chain), tpmkind.DetailsOf(r).EK.Source, r.TPMResident)
			}
			if _, err := plane.CA.Issue(ctx, r.Attested()); err != nil {
				t.Error(ekName, akName, err)
			}
		}
	}
	noHandles(t, device)
}

// An EK without a certificate is presented by itself, and trusted by a list.
func TestRoadEKWithoutCertificate(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{Road: attest.RoadEK, BareEK: true, EK: tpmkind.EKP256()})
	r, err := s.plane.Verifier.Verify(context.Background(), s.good)
	testkit.NoError(t, err)
	if tpmkind.DetailsOf(r).EK.Source != tpmcert.EKFromAllowList || tpmkind.DetailsOf(r).Chain != nil || tpmkind.DetailsOf(r).Profile != "" {
		t.Errorf("%s, chain %v, profile %q", tpmkind.DetailsOf(r).EK.Source, tpmkind.DetailsOf(r).Chain, tpmkind.DetailsOf(r).Profile)
	}
	for _, f := range r.Facts() {
		if f.Name == "EK in a TPM" && f.Value != "by allow-list" {
			t.Error(f)
		}
	}
	kind := s.plane.TPM
	if kind.EKs, err = tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Allowed: []attest.Identity{"ek:sha256:" + attest.Identity(fmt.Sprintf("%064x", 1))}}); err != nil {
		t.Fatal(err)
	}
	if _, err := otherVerifier(t, s, kind).Verify(context.Background(), s.good); !errors.Is(err, refusal.Check("ek-untrusted")) {
		t.Errorf("an EK that is not on the list: %v", err)
	}
}

// Each change to an answer is refused with its own check, and is a denial.
func TestChangedAnswerOfRoadEK(t *testing.T) {
	device := tpmsim.New(t, everyEK())
	s := newStage(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpmkind.EKP256()})
	spki, err := csr.CanonicalSPKI(device.EKPublic(tpmsim.P256))
	testkit.NoError(t, err)
	otherAK, err := tpmkind.AKPublic(t.Context(), device, tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}, secret.Value[[]byte]{})
	testkit.NoError(t, err)
	other := device.EKCertificate(tpmsim.RSA2048).Raw
	for name, c := range map[string]struct {
		change func(*parts)
		want   error
	}{
		"key id":                    {func(p *parts) { p.binding.KeyID[0] ^= 1 }, refusal.Check("ring-key")},
		"nonce":                     {func(p *parts) { p.binding.Nonce[0] ^= 1 }, attest.CheckQualifyingData},
		"issuedAt":                  {func(p *parts) { p.binding.IssuedAt-- }, attest.CheckQualifyingData},
		"notAfter":                  {func(p *parts) { p.binding.NotAfter++ }, attest.CheckQualifyingData},
		"notAfter stretched":        {func(p *parts) { p.binding.NotAfter = p.binding.IssuedAt + 3601 }, refusal.Check("binding-window")},
		"cluster":                   {func(p *parts) { p.binding.ClusterID = "other" }, attest.CheckBindingCluster},
		"signer":                    {func(p *parts) { p.binding.SignerName = csr.SignerServingTPM }, attest.CheckBindingSigner},
		"requester":                 {func(p *parts) { p.binding.Requester = "system:bootstrap:mallor" }, attest.CheckBindingRequester},
		"expirationSeconds":         {func(p *parts) { p.binding.ExpirationSeconds = 600 }, attest.CheckBindingExpiration},
		"machineKey":                {func(p *parts) { p.binding.MachineKey[0] ^= 1 }, attest.CheckBindingMachineKey},
		"akName":                    {func(p *parts) { p.binding.AKName[5] ^= 1 }, refusal.Check("binding-ak-name")},
		"requestHash":               {func(p *parts) { p.binding.RequestHash[0] ^= 1 }, attest.CheckBindingRequest},
		"road AK":                   {func(p *parts) { p.binding.Road, p.binding.AKName = message.RoadAK, nil }, statement.CheckAKMismatch},
		"another requester":         {func(p *parts) { p.request.User.Username = "system:bootstrap:mallor" }, attest.CheckBindingRequester},
		"another lifetime":          {func(p *parts) { s := int32(3600); p.request.Spec.ExpirationSeconds = &s }, attest.CheckBindingExpiration},
		"two sources of the EK":     {func(p *parts) { p.proof.EKPublic = spki }, refusal.Check("ek-sources")},
		"no source of the EK":       {func(p *parts) { p.att.Certificates = nil }, refusal.Check("ek-sources")},
		"another EK of the machine": {func(p *parts) { p.att.Certificates[0] = other }, attest.CheckBindingMachineKey},
		"the bare EK, unlisted":     {func(p *parts) { p.att.Certificates, p.proof.EKPublic = nil, spki }, refusal.Check("ek-untrusted")},
		"an AK certificate as EK's": {func(p *parts) { p.att.Certificates[0] = device.AKCertificate(tpmsim.RSA2048).Raw }, attest.CheckBindingMachineKey},
		"another AK":                {func(p *parts) { p.proof.AKPublic = otherAK.Raw }, refusal.Check("binding-ak-name")},
		"another AK, bound":         {func(p *parts) { p.proof.AKPublic, p.binding.AKName = otherAK.Raw, otherAK.Name() }, attest.CheckQualifyingData},
		"no intermediate":           {func(p *parts) { p.att.Certificates = p.att.Certificates[:1] }, tpmcert.CheckCertificateChain},
	} {
		t.Run(name, func(t *testing.T) {
			p := takeApart(t, s.good)
			c.change(p)
			_, err := s.plane.Verifier.Verify(t.Context(), p.together(t))
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
			if d := csr.Decide(err); d.Verdict != csr.VerdictDeny {
				t.Errorf("%s: the decision is %v, want a denial", name, d)
			}
		})
	}
	if _, err := s.plane.Verifier.Verify(t.Context(), s.good); err != nil {
		t.Errorf("the good one, again: %v", err)
	}
}

// Every bit of the Binding counts.
func TestEveryBitOfTheBinding(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{Road: attest.RoadEK, EK: tpmkind.EKP256()})
	good := takeApart(t, s.good)
	at := bytes.Index(good.att.Statements[1].Stmt, good.proof.Binding)
	for n := range 8 * len(good.proof.Binding) {
		p := takeApart(t, s.good)
		p.att.Statements[1].Stmt[at+n/8] ^= 1 << (n % 8)
		der, err := p.att.Marshal()
		if err != nil {
			continue
		}
		p.bundle.Data = der
		if p.request.Spec.Request, err = p.bundle.Marshal(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.plane.Verifier.Verify(t.Context(), p.request); err == nil {
			t.Fatalf("bit %d: accepted", n)
		}
	}
}

// A hello with an unsuitable AK gets no challenge, whatever its EK.
func TestHelloOfRoadEK(t *testing.T) {
	device := tpmsim.New(t, everyEK())
	s := newStage(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpmkind.EKP256()})
	spki, err := csr.CanonicalSPKI(device.EKPublic(tpmsim.P256))
	testkit.NoError(t, err)
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	testkit.NoError(t, err)
	spki521, err := csr.CanonicalSPKI(p521.Public())
	testkit.NoError(t, err)
	attributes := func(set, clear statement.Attributes) func(*message.Hello, *message.Bundle) {
		return func(h *message.Hello, _ *message.Bundle) { changeAK(t, h, set, clear) }
	}
	for name, c := range map[string]struct {
		change func(*message.Hello, *message.Bundle)
		want   error
	}{
		"AK not restricted":             {attributes(0, statement.AttributeRestricted), refusal.Check("ak-attributes")},
		"AK that decrypts":              {attributes(statement.AttributeDecrypt, 0), refusal.Check("ak-attributes")},
		"AK not fixed to the TPM":       {attributes(0, statement.AttributeFixedTPM), refusal.Check("ak-attributes")},
		"AK not fixed to the parent":    {attributes(0, statement.AttributeFixedParent), refusal.Check("ak-attributes")},
		"AK with a key from outside":    {attributes(0, statement.AttributeSensitiveDataOrigin), refusal.Check("ak-attributes")},
		"AK that signs certificates":    {attributes(statement.AttributeX509Sign, 0), refusal.Check("ak-attributes")},
		"AK that does not sign":         {attributes(0, statement.AttributeSign), refusal.Check("ak-attributes")},
		"AK with a Name over SHA-1":     {func(h *message.Hello, _ *message.Bundle) { h.AKPublic[3] = 4 }, refusal.Check("name-algorithm")},
		"two sources of the EK":         {func(h *message.Hello, _ *message.Bundle) { h.EKPublic = spki }, refusal.Check("ek-sources")},
		"no EK":                         {func(_ *message.Hello, b *message.Bundle) { b.Certificates = nil }, refusal.Check("ek-sources")},
		"an EK in another encoding":     {func(h *message.Hello, b *message.Bundle) { b.Certificates, h.EKPublic = nil, append(spki, 0) }, refusal.Check("ek-key-encoding")},
		"an EK of a kind with no table": {func(h *message.Hello, b *message.Bundle) { b.Certificates, h.EKPublic = nil, spki521 }, refusal.Check("ek-type")},
		"another cluster":               {func(h *message.Hello, _ *message.Bundle) { h.ClusterID = "other" }, attest.CheckBindingCluster},
		"road AK with the EK's":         {func(h *message.Hello, _ *message.Bundle) { h.Road = message.RoadAK }, attest.CheckBindingRoad},
	} {
		t.Run(name, func(t *testing.T) {
			request := changedHello(t, s, c.change)
			if _, err := s.plane.Verifier.Challenge(t.Context(), request); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		})
	}
}

// changeAK changes the attributes of the AK that a hello states.
func changeAK(t *testing.T, h *message.Hello, set, clear statement.Attributes) {
	t.Helper()
	public, err := statement.ParsePublic(h.AKPublic)
	testkit.NoError(t, err)
	public.Attributes = public.Attributes&^clear | set
	if h.AKPublic, err = public.Marshal(); err != nil {
		t.Fatal(err)
	}
}

// changedHello is a hello of the node with something changed.
func changedHello(t *testing.T, s *stage, change func(*message.Hello, *message.Bundle)) *csr.Request {
	t.Helper()
	request, err := s.node.Hello(t.Context(), s.plane.Now())
	testkit.NoError(t, err)
	bundle, err := csr.Parse(request.Spec.Request)
	testkit.NoError(t, err)
	evidence, err := message.ParseBundle(bundle.Data)
	testkit.NoError(t, err)
	hello, err := message.ParseHello(evidence.Statements[0].Stmt)
	testkit.NoError(t, err)
	change(hello, evidence)
	if evidence.Statements[0].Stmt, err = hello.Marshal(); err != nil {
		t.Fatal(err)
	}
	if bundle.Data, err = evidence.Marshal(); err != nil {
		t.Fatal(err)
	}
	if request.Spec.Request, err = bundle.Marshal(); err != nil {
		t.Fatal(err)
	}
	return request
}

// Only the roads that are configured are open.
func TestRoadsAreOpenedByConfiguration(t *testing.T) {
	tpm := tpmsim.New(t, tpmsim.Options{})
	ak := newStage(t, attesttest.NodeOptions{TPM: tpm})
	ek := newStage(t, attesttest.NodeOptions{TPM: tpm, Road: attest.RoadEK})
	if _, err := ak.plane.Verifier.Verify(t.Context(), ek.good); !errors.Is(err, attest.CheckBindingRoad) {
		t.Errorf("road EK where only AK is open: %v", err)
	}
	if _, err := ek.plane.Verifier.Verify(t.Context(), ak.good); !errors.Is(err, attest.CheckBindingRoad) {
		t.Errorf("road AK where only EK is open: %v", err)
	}
	if _, err := ek.plane.Challenge(t.Context(), ak.node); !errors.Is(err, attest.CheckBindingRoad) {
		t.Errorf("a hello on road AK where only EK is open: %v", err)
	}
}

// The node refuses a challenge for anything but its own values, before the TPM opens
// the credential, and one whose credential is for another AK.
func TestNodeRefusesChallengesOfRoadEK(t *testing.T) {
	device := tpmsim.New(t, everyEK())
	s := newStage(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpmkind.EKP256()})
	answer := func(change func(*message.Challenge)) error {
		c, err := message.ParseChallenge(bytes.Clone(s.challenge))
		testkit.NoError(t, err)
		change(c)
		der, err := c.Marshal()
		testkit.NoError(t, err)
		_, err = s.node.Attester.Answer(t.Context(), der, s.node.Certified, s.node.Subject)
		return err
	}
	for name, c := range map[string]struct {
		change func(*message.Challenge)
		want   error
	}{
		"road": {func(c *message.Challenge) {
			c.Binding.Road, c.Binding.AKName, c.Credential, c.Clear = message.RoadAK, nil, nil, make([]byte, message.SecretSize)
		}, attest.CheckBindingRoad},
		"cluster":           {func(c *message.Challenge) { c.Binding.ClusterID = "other" }, attest.CheckBindingCluster},
		"signer":            {func(c *message.Challenge) { c.Binding.SignerName = csr.SignerServingTPM }, attest.CheckBindingSigner},
		"expirationSeconds": {func(c *message.Challenge) { c.Binding.ExpirationSeconds = 600 }, attest.CheckBindingExpiration},
		"machineKey":        {func(c *message.Challenge) { c.Binding.MachineKey[0] ^= 1 }, attest.CheckBindingMachineKey},
		"akName":            {func(c *message.Challenge) { c.Binding.AKName[5] ^= 1 }, refusal.Check("binding-ak-name")},
		"requestHash":       {func(c *message.Challenge) { c.Binding.RequestHash[0] ^= 1 }, attest.CheckBindingRequest},
		"window":            {func(c *message.Challenge) { c.Binding.NotAfter = c.Binding.IssuedAt + 3601 }, refusal.Check("binding-window")},
		"idObject":          {func(c *message.Challenge) { c.Credential.IDObject[4] ^= 1 }, refusal.Check("tpm-credential")},
		"encryptedSecret":   {func(c *message.Challenge) { c.Credential.EncryptedSecret[4] ^= 1 }, refusal.Check("tpm-credential")},
	} {
		t.Run(name, func(t *testing.T) {
			if err := answer(c.change); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		})
	}
	if err := answer(func(*message.Challenge) {}); err != nil {
		t.Errorf("the good one: %v", err)
	}
	noHandles(t, device)
}

// The certificate is for the EK in the TPM, or the node says that it is not.
func TestEKCertificateOfAnotherTPM(t *testing.T) {
	device := tpmsim.New(t, everyEK())
	ek := tpmkind.EKP256()
	a := attesterOf(t, device, tpmkind.GCERSA(), tpmkind.ProverOptions{EK: &ek, Certificates: [][]byte{device.EKCertificate(tpmsim.RSA2048).Raw}})
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device})
	if _, err := a.Hello(t.Context(), node.Subject); err == nil {
		t.Error("a hello with the certificate of another EK")
	}
	noHandles(t, device)
}

// A machine of the same vendor, and a stranger's, are refused; a neighbour cannot
// answer for another.
func TestStrangerOnRoadEK(t *testing.T) {
	ours := newStage(t, attesttest.NodeOptions{Road: attest.RoadEK})
	stranger := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK, TPM: tpmsim.Swtpm(t, tpmsim.Options{})})
	if _, err := ours.plane.Challenge(t.Context(), stranger); !errors.Is(err, tpmcert.CheckCertificateChain) {
		t.Errorf("another issuer: %v", err)
	}
	neighbour := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK, TPM: tpmsim.Swtpm(t, tpmsim.Options{CA: ours.node.TPM.CA()})})
	if _, err := ours.plane.Challenge(t.Context(), neighbour); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("the same issuer: %v", err)
	}
	_, err := neighbour.Attester.Answer(t.Context(), ours.challenge, neighbour.Certified, neighbour.Subject)
	if !errors.Is(err, attest.CheckBindingMachineKey) {
		t.Errorf("an answer for another machine: %v", err)
	}
}

// Persistent EKs are used where they are, and stay there.
func TestPersistentEK(t *testing.T) {
	options := everyEK()
	options.PersistEKs = true
	device := tpmsim.New(t, options)
	for handle, index := range map[tpm2.TPMHandle]tpm2.TPMHandle{
		0x81010001: 0x01c00002,
		0x81010002: 0x01c0000a,
		0x81010016: 0x01c00016,
	} {
		s := newStage(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpmkind.EKOrigin{Handle: handle, CertificateIndex: index}})
		if _, err := s.plane.Join(t.Context(), s.node); err != nil {
			t.Errorf("0x%x: %v", uint32(handle), err)
		}
	}
	noHandles(t, device)
}

func otherVerifier(t testing.TB, s *stage, kind tpmkind.KindConfig) *attest.Verifier {
	t.Helper()
	v, _ := verifierOf(t, s.plane.Config, kind)
	return v
}
