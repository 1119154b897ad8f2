package goattestation

import (
	"bytes"
	"context"
	"crypto"
	"testing"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// go-attestation finds the EK certificates of our TPMs, and they are for the keys at the
// handles where it looks for them.
func TestEKsOfTPMs(t *testing.T) {
	onBoth(t, func(t *testing.T, device transport.TPM, client *goattest.TPM, simulated *tpmsim.TPM) {
		eks := testkit.Must(client.EKCertificates())
		if len(eks) != 2 {
			t.Fatalf("go-attestation finds %d EK certificates, want 2", len(eks))
		}
		handles := map[tpmsim.Algorithm]tpm2.TPMHandle{tpmsim.RSA2048: 0x81010001, tpmsim.P256: 0x81010002}
		for n, algorithm := range []tpmsim.Algorithm{tpmsim.RSA2048, tpmsim.P256} {
			ours, err := EKCertificate(eks[n])
			if err != nil || !ours.Certificate.Equal(simulated.EKCertificate(algorithm)) {
				t.Errorf("EK certificate %d is not that of %v: %v", n, algorithm, err)
			}
			rsp, err := tpm2.ReadPublic{ObjectHandle: handles[algorithm]}.Execute(device)
			if err != nil {
				t.Fatalf("persistent EK %v: %v", algorithm, err)
			}
			key := testkit.Must(tpm2.Pub(*testkit.Must(rsp.OutPublic.Contents())))
			if !key.(interface{ Equal(crypto.PublicKey) bool }).Equal(simulated.EKPublic(algorithm)) {
				t.Errorf("the persistent EK %v is %v", algorithm, key)
			}
		}
	})
}

// Our credentials open with go-attestation's client, and go-attestation's with ours, whose AK is
// the client's: by its blob, and persistent.
func TestCredentials(t *testing.T) {
	onBoth(t, func(t *testing.T, device transport.TPM, client *goattest.TPM, _ *tpmsim.TPM) {
		ak := testkit.Must(client.NewAK(nil))
		public := ak.AttestationParameters().Public
		sources := map[string]tpm.AKSource{
			"persistent": {Handle: persisted(t, device, public)},
			"blob":       testkit.Must(AKSource(testkit.Must(ak.Marshal()), nil)),
		}
		secret := []byte("opens in go-attestation, 32 byte")
		for n, origin := range []tpm.EKOrigin{tpm.EKRSA2048(), tpm.EKP256()} {
			ek := testkit.Must(client.EKCertificates())[n]
			got, err := ak.ActivateCredentialWithEK(client, testkit.Must(EncryptedCredential(sealed(t, ek.Public, public, secret))), ek)
			if err != nil || !bytes.Equal(got, secret) {
				t.Errorf("EK %d, ours with theirs: %q, %v", n, got, err)
			}

			there := testkit.Must(EK(testkit.Must(EKCertificate(ek))))
			want, theirs, err := (&goattest.ActivationParameters{EK: there.Public, AK: ak.AttestationParameters()}).Generate()
			testkit.NoError(t, err)
			for name, source := range sources {
				got, err = opened(t, device, source, &origin, testkit.Must(Credential(*theirs)))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("EK %d, theirs with ours, %s: %q, %v", n, name, got, err)
				}
			}
		}
		testkit.NoError(t, ak.Close(client))
	})
}

// persisted puts the only key that is loaded, of this public area, at a persistent handle.
func persisted(t *testing.T, device transport.TPM, public []byte) tpm2.TPMHandle {
	t.Helper()
	const handle tpm2.TPMHandle = 0x81000100
	loaded, area := tpmlab.LoadedHandles(t, device), testkit.Must(statement.ParsePublic(public))
	if len(loaded) != 1 {
		t.Fatalf("loaded: %x", loaded)
	}
	if _, err := (tpm2.EvictControl{Auth: tpm2.TPMRHOwner, PersistentHandle: handle,
		ObjectHandle: &tpm2.NamedHandle{Handle: loaded[0], Name: tpm2.TPM2BName{Buffer: area.Name()}}}).Execute(device); err != nil {
		t.Fatal(err)
	}
	return handle
}

// sealed is the credential that a control plane makes for an EK without a certificate and for
// the AK with this public area.
func sealed(t *testing.T, ek crypto.PublicKey, ak, secret []byte) *attest.Credential {
	t.Helper()
	hello, err := (&message.Hello{Road: message.RoadEK, ClusterID: attesttest.ClusterID, TargetSigner: csr.SignerClientTPM,
		EKPublic: testkit.Must(csr.CanonicalSPKI(ek)), AKPublic: ak}).Marshal()
	testkit.NoError(t, err)
	evidence, err := new(tpm.Kind).ReadHello(&attest.Evidence{Statements: []attest.Statement{{Type: oid.NodeAttestHello, DER: hello}}})
	testkit.NoError(t, err)
	_, err = evidence.Present()
	testkit.NoError(t, err)
	credential, err := evidence.Seal(t.Context(), &attest.Inquiry{Budget: attest.NewBudget(1)}, secret)
	testkit.NoError(t, err)
	return credential
}

// opened is the content of a credential.
func opened(t *testing.T, device transport.TPM, ak tpm.AKSource, ek *tpm.EKOrigin, credential *attest.Credential) (secret []byte, err error) {
	t.Helper()
	prover, err := tpm.NewProver(device, ak, tpm.ProverOptions{EK: ek})
	testkit.NoError(t, err)
	err = prover.Use(t.Context(), attest.StageAnswer, func(s attest.Session) (err error) {
		secret, err = s.Open(context.Background(), credential)
		return err
	})
	return secret, err
}

// go-attestation verifies the quotes of our nodes, but for those with RSAPSS, which it cannot and
// Quote refuses.
func TestQuotesOfNodes(t *testing.T) {
	all := make([]int, 24)
	for n := range all {
		all[n] = n
	}
	onBoth(t, func(t *testing.T, device transport.TPM, _ *goattest.TPM, simulated *tpmsim.TPM) {
		tpmlab.ExtendPCR(t, device, 10)
		for name, template := range map[string]*tpm2.TPMTPublic{
			"RSASSA": tpm.AKTemplateRSA2048SHA256(), "P-256": tpm.AKTemplateECDSAP256(), "P-384": tpm.AKTemplateECDSAP384(),
			"RSAPSS": tpm.AKTemplateRSA2048PSS(),
		} {
			for selected, selection := range map[string][]statement.PCRSelection{
				"default": tpm.DefaultPCRs(),
				"one":     {testkit.Must(statement.NewPCRSelection(tpm2.TPMAlgSHA256, 10))},
				"all":     {testkit.Must(statement.NewPCRSelection(tpm2.TPMAlgSHA256, all...))},
			} {
				t.Run(name+"/"+selected, func(t *testing.T) {
					a := answerOf(t, attesttest.NodeOptions{TPM: simulated, Road: attest.RoadEK, EK: tpm.EKP256(),
						AK: tpm.AKSource{Template: template}, Quote: selection})
					quote, pcrs, err := Quote(a.quote)
					if name == "RSAPSS" {
						tpmlab.ExpectCheck(t, err, checkValue)
						return
					}
					testkit.NoError(t, err)
					// It is verified there, too, that this covers the challenge.
					nonce := testkit.Must(statement.ParseAttestation(a.quote.Attest)).ExtraData
					ak := testkit.Must(goattest.ParseAKPublic(a.ak))
					testkit.NoError(t, ak.Verify(quote, pcrs, nonce))
				})
			}
		}
	})
}
