package tpm_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// akTemplates are the library's own, by name.
func akTemplates() map[string]*tpm2.TPMTPublic {
	return map[string]*tpm2.TPMTPublic{
		"RSASSA-SHA256": tpmkind.AKTemplateRSA2048SHA256(),
		"RSAPSS-SHA256": tpmkind.AKTemplateRSA2048PSS(),
		"ECDSA-P256":    tpmkind.AKTemplateECDSAP256(),
		"ECDSA-P384":    tpmkind.AKTemplateECDSAP384(),
	}
}

// keyOptions are the keys to certify, by name.
func keyOptions(t testing.TB, rsaBits ...int) map[string]attesttest.NodeOptions {
	out := map[string]attesttest.NodeOptions{
		"software P-256": {Key: newKey(t, elliptic.P256())},
		"software P-384": {Key: newKey(t, elliptic.P384())},
		"TPM P-256":      {TPMKey: tpmkey.ECDSAP256},
		"TPM RSA-2048":   {TPMKey: tpmkey.RSA2048},
	}
	for _, bits := range rsaBits {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		testkit.NoError(t, err)
		out[fmt.Sprintf("software RSA-%d", bits)] = attesttest.NodeOptions{Key: key}
	}
	return out
}

func newKey(t testing.TB, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	testkit.NoError(t, err)
	return key
}

// certified returns source and certificates for an AK made from a template.
func certified(t testing.TB, device *tpmsim.TPM, template *tpm2.TPMTPublic) (tpmkind.AKSource, [][]byte) {
	t.Helper()
	source := tpmkind.AKSource{Template: template}
	public, err := tpmkind.AKPublic(context.Background(), device, source, secret.Value[[]byte]{})
	testkit.NoError(t, err)
	key, err := public.Key()
	testkit.NoError(t, err)
	leaf, err := device.CertifyAK(key)
	testkit.NoError(t, err)
	return source, [][]byte{leaf.Raw, device.CA().AKIntermediate().Raw}
}

// Every AK of the library certifies every kind of key, and the verifier accepts each pair and names
// it.
func TestPairsOnTheSimulator(t *testing.T) {
	testPairs(t, tpmsim.New(t, tpmsim.Options{}), akTemplates(), keyOptions(t, 2048))
}

func TestPairsOnSwtpm(t *testing.T) {
	aks := akTemplates()
	testPairs(t, tpmsim.Swtpm(t, tpmsim.Options{}), aks, keyOptions(t, 2048, 3072))
}

func testPairs(t *testing.T, device *tpmsim.TPM, aks map[string]*tpm2.TPMTPublic, keys map[string]attesttest.NodeOptions) {
	ctx := context.Background()
	for akName, template := range aks {
		source, certificates := certified(t, device, template)
		for keyName, o := range keys {
			t.Run(akName+"/"+keyName, func(t *testing.T) {
				o.TPM, o.AK, o.Certificates = device, source, certificates
				node := attesttest.NewNode(t, o)
				plane := attesttest.NewControlPlane(t, node)
				request, err := plane.Evidence(ctx, node)
				testkit.NoError(t, err)
				r, err := plane.Verifier.Verify(ctx, request)
				testkit.NoError(t, err)
				if r.TPMResident != (o.TPMKey != 0) {
					t.Errorf("TPMResident is %v", r.TPMResident)
				}
				if !tpmkind.DetailsOf(r).Clock.Plain {
					t.Error("the clock of an AK in the endorsement hierarchy is not plain")
				}
				if _, err := plane.CA.Issue(ctx, r.Attested()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	noHandles(t, device)
}

func noHandles(t *testing.T, tpm *tpmsim.TPM) {
	t.Helper()
	left, err := tpmsim.LoadedHandles(tpm)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the TPM: %x, %v", left, err)
	}
}

// The verifier can demand a key that lives in the TPM.
func TestRequireTPMResident(t *testing.T) {
	ctx := context.Background()
	tpm := tpmsim.New(t, tpmsim.Options{})
	for name, o := range map[string]attesttest.NodeOptions{
		"software": {TPM: tpm},
		"resident": {TPM: tpm, TPMKey: tpmkey.ECDSAP256},
	} {
		node := attesttest.NewNode(t, o)
		plane := attesttest.NewControlPlane(t, node)
		plane.Config.RequireTPMResident = true
		verifier := planeVerifier(t, plane)
		request, err := plane.Evidence(ctx, node)
		testkit.NoError(t, err)
		_, err = verifier.Verify(ctx, request)
		if name == "resident" && err != nil || name == "software" && !errors.Is(err, refusal.Check("key-residency")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// AK template and certificate come from NV at Google's indexes, with a nonce
// where there is one, and the identity from the certificate.
func TestAKFromNV(t *testing.T) {
	ctx := context.Background()
	instance := tpmsim.DefaultInstance()
	device := tpmsim.New(t, tpmsim.Options{Instance: instance, AKs: []tpmsim.AK{
		{Algorithm: tpmsim.RSA2048},
		{Algorithm: tpmsim.P256, NonceIndex: 0x01c1ff04},
	}})
	padded := append(device.AKCertificate(tpmsim.RSA2048).Raw, bytes.Repeat([]byte{0xff}, 100)...)
	tpmlab.WriteNV(t, device, tpmkind.GCERSA().CertificateIndex, padded)
	google := tpmcert.ProfileGoogle()
	ecc := tpmkind.GCEECC()
	ecc.NonceIndex = 0x01c1ff04
	want := attest.Identity(fmt.Sprintf("gce:%s/%d", instance.ProjectID, instance.InstanceID))
	for name, source := range map[string]tpmkind.AKSource{"RSA": tpmkind.GCERSA(), "ECC": ecc} {
		node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, AK: source, Profile: google})
		plane := attesttest.NewControlPlane(t, node)
		request, err := plane.Evidence(ctx, node)
		if err != nil {
			t.Fatal(name, err)
		}
		r, err := plane.Verifier.Verify(ctx, request)
		if err != nil {
			t.Fatal(name, err)
		}
		if r.Machine != want || tpmkind.DetailsOf(r).Profile != google.Name {
			t.Errorf("%s: machine %s by %s, want %s", name, r.Machine, tpmkind.DetailsOf(r).Profile, want)
		}
		if id := tpmkind.DetailsOf(r).ProviderID(); id != "gce://"+instance.ProjectID+"/"+instance.Zone+"/"+instance.InstanceName {
			t.Errorf("%s: provider ID %q", name, id)
		}
	}
	noHandles(t, device)
}

// A virtual machine of Azure's joins with its persistent AK and the certificate in NV, by both
// hierarchies. The CAs above it come from the node, or are known.
func TestAKOfAzure(t *testing.T) {
	ctx := context.Background()
	device := tpmsim.New(t, tpmlab.AzureVM())
	for _, h := range tpmlab.AzureHierarchies(t) {
		certificate := h.Provision(t, device)
		node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, AK: tpmkind.AzureRSA(), Profile: tpmcert.ProfileAzure()})
		want, err := tpmcert.AKIdentity{}.Identify(certificate)
		testkit.NoError(t, err)
		for name, row := range map[string]struct {
			options tpmkind.ProverOptions
			issuer  tpmcert.Issuer
			refused error
		}{
			"the node sends them":        {tpmkind.ProverOptions{Intermediates: tpmcert.CertificatesDER(h.Intermediates)}, tpmcert.Issuer{Profile: tpmcert.ProfileAzure()}, nil},
			"the control plane has them": {tpmkind.ProverOptions{}, tpmcert.Issuer{Intermediates: h.Intermediates, Profile: tpmcert.ProfileAzure()}, nil},
			"missing":                    {tpmkind.ProverOptions{}, tpmcert.Issuer{Profile: tpmcert.ProfileAzure()}, tpmcert.CheckCertificateChain},
			"by Google's profile":        {tpmkind.ProverOptions{}, tpmcert.Issuer{Intermediates: h.Intermediates, Profile: tpmcert.ProfileGoogle()}, refusal.Check("certificate-ext-key-usage")},
		} {
			t.Run(h.Name+", "+name, func(t *testing.T) {
				node.Attester = attesterOf(t, node.Shared, tpmkind.AzureRSA(), row.options)
				row.issuer.Roots = []*x509.Certificate{h.Root}
				plane := attesttest.NewControlPlane(t, node)
				plane.TPM.AKIssuers = []tpmcert.Issuer{row.issuer}
				plane.Verifier = planeVerifier(t, plane)
				request, err := plane.Evidence(ctx, node)
				if row.refused != nil {
					if !errors.Is(err, row.refused) {
						t.Errorf("got %v, want %v", err, row.refused)
					}
					return
				}
				testkit.NoError(t, err)
				r, err := plane.Verifier.Verify(ctx, request)
				testkit.NoError(t, err)
				if id := tpmkind.DetailsOf(r).ProviderID(); r.Machine != want || id != "" {
					t.Errorf("machine %s with provider ID %q, want %s without", r.Machine, id, want)
				}
			})
		}
	}
	noHandles(t, device)
}

// The OtherName of the 2018 document is the identity where there is one.
func TestIdentityFromOtherName(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{OtherName: &tpmsim.OtherName{Type: "\x2a\x03\x04", Value: []byte{0x0c, 2, 'm', '1'}}})
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device})
	plane := attesttest.NewControlPlane(t, node)
	request, err := plane.Evidence(context.Background(), node)
	testkit.NoError(t, err)
	r, err := plane.Verifier.Verify(context.Background(), request)
	testkit.NoError(t, err)
	if want := attest.Identity("othername:1.2.3.4:DAJtMQ"); r.Machine != want || r.Machine.Kind() != "othername" {
		t.Errorf("got %s, want %s", r.Machine, want)
	}
	if tpmkind.DetailsOf(r).Directory.Vendor == "" || tpmkind.DetailsOf(r).Directory.Model == "" {
		t.Errorf("no directory name: %+v", tpmkind.DetailsOf(r).Directory)
	}
}

// Two verifiers that share nothing but the key ring accept answers to each other's challenges; a
// retired key's are refused, and a ring's that was not read.
func TestReplicas(t *testing.T) {
	ctx := context.Background()
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	plane := attesttest.NewControlPlane(t, node)
	now := plane.Now()
	key := attest.NewRingKey(now.Add(-time.Hour))
	replica := func(keys ...attest.RingKey) (*attest.Verifier, *attest.KeyRing) {
		ring := new(attest.KeyRing)
		testkit.NoError(t, ring.Refresh(keys, now))
		c := plane.Config
		c.KeyRing = ring
		return newVerifier(t, &c), ring
	}
	first, _ := replica(key)
	second, secondRing := replica(key)
	hello, err := node.Hello(ctx, plane.Now())
	testkit.NoError(t, err)
	challenge, err := first.Challenge(ctx, hello)
	testkit.NoError(t, err)
	answer, err := node.Answer(ctx, challenge, plane.Now())
	testkit.NoError(t, err)
	if _, err := second.Verify(ctx, answer); err != nil {
		t.Errorf("the other replica: %v", err)
	}
	if _, err := first.Verify(ctx, answer); err != nil {
		t.Errorf("the same, filed again: %v", err)
	}

	other, _ := replica(attest.NewRingKey(now.Add(-time.Hour)))
	if _, err := other.Verify(ctx, answer); !errors.Is(err, refusal.Check("ring-key")) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("another ring: got %v", err)
	}
	retired := key
	retired.RetiredAt = now
	testkit.NoError(t, secondRing.Refresh([]attest.RingKey{retired, attest.NewRingKey(now)}, now))
	if _, err := second.Verify(ctx, answer); !errors.Is(err, refusal.Check("ring-key")) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a retired key: got %v", err)
	}
	future := key
	future.ActiveAt = now.Add(time.Hour)
	third, _ := replica(future)
	if _, err := third.Verify(ctx, answer); !errors.Is(err, refusal.Check("ring-key")) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a key of the future: got %v", err)
	}
	if _, err := third.Challenge(ctx, hello); !errors.Is(err, refusal.Check("ring-empty")) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a challenge with a key of the future: got %v", err)
	}
	plane.Advance(message.MaxRingAge + time.Second)
	if _, err := first.Verify(ctx, answer); !errors.Is(err, refusal.Check("ring-stale")) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a stale ring: got %v", err)
	}
}
