package interop

import (
	"bytes"
	"context"
	"crypto"
	"testing"

	goattestation "github.com/google/go-attestation/attest"
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
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// channel is a TPM as go-attestation wants it.
type channel struct {
	tpm transport.TPM
	rsp bytes.Buffer
}

func (c *channel) Write(command []byte) (int, error) {
	rsp, err := c.tpm.Send(command)
	c.rsp.Write(rsp)
	return len(command), err
}

func (c *channel) Read(b []byte) (int, error)      { return c.rsp.Read(b) }
func (c *channel) Close() error                    { return nil }
func (c *channel) MeasurementLog() ([]byte, error) { return nil, nil }

// onBoth runs a test on two TPMs, and go-attestation on each. The EKs are persistent: it wants
// an ECC EK at its handle.
func onBoth(t *testing.T, test func(t *testing.T, device *tpmsim.TPM, client *goattestation.TPM)) {
	t.Helper()
	for name, open := range map[string]func(testing.TB, tpmsim.Options) *tpmsim.TPM{"simulator": tpmsim.New, "swtpm": tpmsim.Swtpm} {
		t.Run(name, func(t *testing.T) {
			device := open(t, tpmsim.Options{PersistEKs: true})
			client, err := goattestation.OpenTPM(&goattestation.OpenConfig{CommandChannel: &channel{tpm: device}})
			if err != nil {
				t.Fatal(err)
			}
			test(t, device, client)
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			tpmlab.CheckNothingLoaded(t, device)
		})
	}
}

// go-attestation finds the EK certificates of our TPMs, and they are for the keys at the
// handles where it looks for them.
func TestEKsOfTPMs(t *testing.T) {
	onBoth(t, func(t *testing.T, device *tpmsim.TPM, client *goattestation.TPM) {
		eks := testkit.Must(client.EKCertificates())
		if len(eks) != 2 {
			t.Fatalf("go-attestation finds %d EK certificates, want 2", len(eks))
		}
		handles := map[tpmsim.Algorithm]tpm2.TPMHandle{tpmsim.RSA2048: 0x81010001, tpmsim.P256: 0x81010002}
		for n, algorithm := range []tpmsim.Algorithm{tpmsim.RSA2048, tpmsim.P256} {
			if !eks[n].Certificate.Equal(device.EKCertificate(algorithm)) {
				t.Errorf("EK certificate %d is not that of %v", n, algorithm)
			}
			rsp, err := tpm2.ReadPublic{ObjectHandle: handles[algorithm]}.Execute(device)
			if err != nil {
				t.Fatalf("persistent EK %v: %v", algorithm, err)
			}
			key := testkit.Must(tpm2.Pub(*testkit.Must(rsp.OutPublic.Contents())))
			if !key.(interface{ Equal(crypto.PublicKey) bool }).Equal(device.EKPublic(algorithm)) {
				t.Errorf("the persistent EK %v is %v", algorithm, key)
			}
		}
	})
}

// Our credentials open with go-attestation's client, and go-attestation's with ours.
func TestCredentials(t *testing.T) {
	onBoth(t, func(t *testing.T, device *tpmsim.TPM, client *goattestation.TPM) {
		ak := testkit.Must(client.NewAK(nil))
		public := ak.AttestationParameters().Public
		source := tpm.AKSource{Handle: persisted(t, device, public)}
		secret := []byte("opens in go-attestation, 32 byte")
		for n, origin := range []tpm.EKOrigin{tpm.EKRSA2048(), tpm.EKP256()} {
			ek := testkit.Must(client.EKCertificates())[n]
			ours := sealed(t, ek.Public, public, secret)
			got, err := ak.ActivateCredentialWithEK(client, goattestation.EncryptedCredential{
				Credential: tpm2.Marshal(tpm2.TPM2BIDObject{Buffer: ours.IDObject}),
				Secret:     tpm2.Marshal(tpm2.TPM2BEncryptedSecret{Buffer: ours.EncryptedSecret}),
			}, ek)
			if err != nil || !bytes.Equal(got, secret) {
				t.Errorf("EK %d, ours with theirs: %q, %v", n, got, err)
			}

			want, theirs, err := (&goattestation.ActivationParameters{EK: ek.Public, AK: ak.AttestationParameters()}).Generate()
			if err != nil {
				t.Fatal(err)
			}
			got, err = opened(t, device, source, &origin, &attest.Credential{IDObject: theirs.Credential[2:], EncryptedSecret: theirs.Secret[2:]})
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("EK %d, theirs with ours: %q, %v", n, got, err)
			}
		}
		if err := ak.Close(client); err != nil {
			t.Error(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	evidence, err := new(tpm.Kind).ReadHello(&attest.Evidence{Statements: []attest.Statement{{Type: oid.NodeAttestHello, DER: hello}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.Present(); err != nil {
		t.Fatal(err)
	}
	credential, err := evidence.Seal(t.Context(), &attest.Inquiry{Budget: attest.NewBudget(1)}, secret)
	if err != nil {
		t.Fatal(err)
	}
	return credential
}

// opened is the content of a credential.
func opened(t *testing.T, device transport.TPM, ak tpm.AKSource, ek *tpm.EKOrigin, credential *attest.Credential) (secret []byte, err error) {
	t.Helper()
	prover, err := tpm.NewProver(device, ak, tpm.ProverOptions{EK: ek})
	if err != nil {
		t.Fatal(err)
	}
	err = prover.Use(t.Context(), attest.StageAnswer, func(s attest.Session) (err error) {
		secret, err = s.Open(context.Background(), credential)
		return err
	})
	return secret, err
}

// go-attestation verifies the quotes of our nodes, but for those with RSAPSS, which it cannot.
func TestQuotes(t *testing.T) {
	all := make([]int, 24)
	for n := range all {
		all[n] = n
	}
	onBoth(t, func(t *testing.T, device *tpmsim.TPM, _ *goattestation.TPM) {
		tpmlab.ExtendPCR(t, device, 10)
		for name, template := range map[string]*tpm2.TPMTPublic{
			"RSASSA": tpm.AKTemplateRSA2048SHA256(), "P-256": tpm.AKTemplateECDSAP256(), "P-384": tpm.AKTemplateECDSAP384(),
		} {
			for selected, selection := range map[string][]statement.PCRSelection{
				"default": tpm.DefaultPCRs(),
				"one":     {testkit.Must(statement.NewPCRSelection(tpm2.TPMAlgSHA256, 10))},
				"all":     {testkit.Must(statement.NewPCRSelection(tpm2.TPMAlgSHA256, all...))},
			} {
				t.Run(name+"/"+selected, func(t *testing.T) {
					a := answerOf(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpm.EKP256(),
						AK: tpm.AKSource{Template: template}, Quote: selection})
					// It is verified there, too, that this covers the challenge.
					nonce := testkit.Must(statement.ParseAttestation(a.quote.Attest)).ExtraData
					pcrs := make([]goattestation.PCR, len(a.quote.PCRs))
					for n, p := range a.quote.PCRs {
						pcrs[n] = goattestation.PCR{Index: p.Index, Digest: p.Value, DigestAlg: tpmwire.HashOf(p.Bank)}
					}
					ak := testkit.Must(goattestation.ParseAKPublic(a.ak))
					if err := ak.Verify(goattestation.Quote{Quote: a.quote.Attest, Signature: a.quote.Signature}, pcrs, nonce); err != nil {
						t.Errorf("go-attestation: %v", err)
					}
				})
			}
		}
	})
}
