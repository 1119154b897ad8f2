package goattestation

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// parents are the storage keys under which go-attestation makes keys: its default, and one on P-256.
var parents = map[string]*goattest.ParentKeyConfig{"default": nil, "ECC": {Algorithm: goattest.ECDSA, Handle: 0x81000002}}

// An AK of either algorithm, under either parent, joins from its blob, with a key in software and
// with one that go-attestation made. go-attestation verifies the join's statements.
func TestJoinWithAK(t *testing.T) {
	onBoth(t, func(t *testing.T, device transport.TPM, client *goattest.TPM, simulated *tpmsim.TPM) {
		for parent, config := range parents {
			for _, algorithm := range []goattest.Algorithm{goattest.RSA, goattest.ECDSA} {
				t.Run(parent+"/"+string(algorithm), func(t *testing.T) {
					ak := testkit.Must(client.NewAK(&goattest.AKConfig{Algorithm: algorithm, Parent: config}))
					made := testkit.Must(client.NewKey(ak, &goattest.KeyConfig{Algorithm: algorithm, Size: algorithm.Size(), Parent: config}))
					source := testkit.Must(AKSource(testkit.Must(ak.Marshal()), config))
					file := testkit.Must(KeyFile(testkit.Must(made.Marshal()), config))
					testkit.NoError(t, errors.Join(made.Close(), ak.Close(client)))
					key, err := tpmkey.Load(t.Context(), device, file, tpmkey.LoadOptions{})
					testkit.NoError(t, err)
					resident := joined(t, simulated, device, source, key)
					checkThere(t, resident, "")
					if !bytes.Equal(resident.certify.Public, made.CertificationParameters().Public) ||
						!bytes.Equal(resident.ak, ak.AttestationParameters().Public) {
						t.Error("certified another key, or with another AK")
					}
					// Its TPM did not make a software key, which go-attestation wants.
					checkThere(t, joined(t, simulated, device, source, tpmlab.NewP256(t)), "exportable")
					testkit.NoError(t, key.Close())
				})
			}
		}
	})
}

// joined is a node's answer in a whole join on the road of its RSA EK.
func joined(t *testing.T, simulated *tpmsim.TPM, device transport.TPM, source tpm.AKSource, key crypto.Signer) *answered {
	t.Helper()
	maker := simulated.CA()
	clusterCA := tpmlab.Sign(t, nil, "cluster", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(48*time.Hour)
	})
	ek := testkit.Must(tpmcert.ParseEK(simulated.EKCertificate(tpmsim.RSA2048).Raw))
	plane, err := join.NewPlane(join.Config{Chain: []*x509.Certificate{clusterCA.Cert}, Key: clusterCA.Key,
		Kinds:   []attest.Kind{testkit.Must(tpm.TrustEKs([]*x509.Certificate{maker.Root()}))},
		Members: testkit.Must(membership.ParseStaticList(fmt.Appendf(nil, "%s node-1\n", ek.Identity())))})
	testkit.NoError(t, err)
	prover, err := tpm.NewProver(device, source, tpm.ProverOptions{EK: new(tpm.EKRSA2048()), Quote: tpm.DefaultPCRs(),
		Intermediates: [][]byte{maker.EKIntermediate().Raw}})
	testkit.NoError(t, err)
	user := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	a, file := &answered{}, join.InMemory(plane, user)
	node := join.Node{Name: "node-1", ClusterID: testkit.Must(attest.ClusterID(clusterCA.Cert)), Prover: prover, Key: key}
	_, err = node.Join(t.Context(), func(ctx context.Context, spec *csr.Spec) (filed *csr.Request, err error) {
		filed, err = file(ctx, spec)
		a.request = filed
		return filed, err
	})
	testkit.NoError(t, err)
	a.read(t)
	return a
}

// checkThere verifies an answer's statements with go-attestation; want is its refusal of the certify
// statement, "" for none.
func checkThere(t *testing.T, a *answered, want string) {
	t.Helper()
	ak := testkit.Must(goattest.ParseAKPublic(a.ak))
	parameters := testkit.Must(CertificationParameters(a.certify))
	err := parameters.Verify(goattest.VerifyOpts{Public: ak.Public, Hash: ak.Hash})
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("certify statement: %v", err)
	}
	quote, pcrs, err := Quote(a.quote)
	testkit.NoError(t, err)
	if err := ak.Verify(quote, pcrs, testkit.Must(statement.ParseAttestation(a.quote.Attest)).ExtraData); err != nil {
		t.Errorf("quote: %v", err)
	}
}

// storedKey is a blob as go-attestation's storage.go has it.
type storedKey struct {
	KeyEncoding, TPMVersion                                         int
	Public, CreateData, CreateAttestation, CreateSignature, KeyBlob []byte
	Name                                                            string
}

func blobsOf(t testing.TB) (ak, key []byte) {
	t.Helper()
	client := clientOf(t, tpmsim.New(t, tpmsim.Options{}))
	made := testkit.Must(client.NewAK(&goattest.AKConfig{Algorithm: goattest.ECDSA}))
	application := testkit.Must(client.NewKey(made, nil))
	return testkit.Must(made.Marshal()), testkit.Must(application.Marshal())
}

// A blob of an AK and one of a key are each refused as the other, and changed in each field.
func TestBlobRefusals(t *testing.T) {
	ak, key := blobsOf(t)
	for name, c := range map[string]struct {
		change func(*storedKey)
		want   refusal.Check
	}{
		"unchanged":            {func(*storedKey) {}, ""},
		"without creation":     {func(k *storedKey) { k.CreateData, k.CreateAttestation, k.CreateSignature = nil, nil, nil }, ""},
		"a key of Windows":     {func(k *storedKey) { k.KeyEncoding, k.Name, k.KeyBlob = 1, "ak", nil }, checkBlob},
		"no encoding":          {func(k *storedKey) { k.KeyEncoding = 0 }, checkBlob},
		"TPM 1.2":              {func(k *storedKey) { k.TPMVersion = 1 }, checkBlob},
		"no public area":       {func(k *storedKey) { k.Public = []byte{} }, checkBlob},
		"no private part":      {func(k *storedKey) { k.KeyBlob = []byte{} }, checkBlob},
		"null":                 {func(k *storedKey) { k.KeyBlob = nil }, checkBlob},
		"too long":             {func(k *storedKey) { k.CreateData = make([]byte, maxBlob) }, checkBlob},
		"another public area":  {func(k *storedKey) { k.Public = k.Public[1:] }, "tpm-key-type"},
		"a public area and 00": {func(k *storedKey) { k.Public = append(k.Public, 0) }, "public-encoding"},
	} {
		for what, blob := range map[string][]byte{"AK": ak, "key": key} {
			var stored storedKey
			testkit.NoError(t, json.Unmarshal(blob, &stored))
			c.change(&stored)
			changed := testkit.Must(json.Marshal(stored))
			_, err := AKSource(changed, nil)
			if what == "key" {
				_, err = KeyFile(changed, nil)
			}
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("%s, %s: got %v, want %v", what, name, err, c.want)
			}
		}
	}
	for name, blob := range map[string]string{"nothing": "", "no object": "[]", "two": string(ak) + "{}", "cut": string(ak[:len(ak)-1]),
		"a name twice": strings.Replace(string(ak), "{", `{"Public":"AA==",`, 1),
		"bad base64":   strings.Replace(string(ak), `"Public":"`, `"Public":"!`, 1)} {
		if _, err := AKSource([]byte(blob), nil); !errors.Is(err, checkBlob) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := AKSource(key, nil)
	tpmlab.ExpectCheck(t, err, refusal.Check("ak-attributes"))
	if _, err = KeyFile(ak, nil); !errors.Is(err, refusal.Check("tpm-key-file")) {
		t.Errorf("an AK as a key: %v", err)
	}
	for _, handle := range []uint32{0, 0x40000001, 0x80000000} {
		parent := &goattest.ParentKeyConfig{}
		*(*uint32)(&parent.Handle) = handle
		_, err := AKSource(ak, parent)
		tpmlab.ExpectCheck(t, err, checkBlob)
		_, err = KeyFile(key, parent)
		tpmlab.ExpectCheck(t, err, checkBlob)
	}
}

// The AK is loaded under the parent that is named, and not under another.
func TestAKUnderAnotherParent(t *testing.T) {
	device := tpmkey.Share(tpmsim.New(t, tpmsim.Options{}))
	client := clientOf(t, device)
	for name, config := range parents {
		ak := testkit.Must(client.NewAK(&goattest.AKConfig{Parent: config}))
		blob := testkit.Must(ak.Marshal())
		testkit.NoError(t, ak.Close(client))
		for other, under := range parents {
			_, err := tpm.AKPublic(t.Context(), device, testkit.Must(AKSource(blob, under)), tpm.ProverOptions{}.EndorsementPassword)
			if (err == nil) != (name == other) {
				t.Errorf("of %s under %s: %v", name, other, err)
			}
		}
	}
}

// FuzzBlob: a blob that is accepted has the key that go-attestation reads in it, which also decodes
// members that are skipped here.
func FuzzBlob(f *testing.F) {
	testkit.BeginFuzz(f)
	ak, key := blobsOf(f)
	f.Add(ak)
	f.Add(key)
	f.Add([]byte(`{"KeyEncoding":2,"TPMVersion":2,"Public":"","KeyBlob":""}`))
	f.Add([]byte(`{"KeyEncoding":1,"TPMVersion":2,"Name":"ak"}`))
	f.Fuzz(func(t *testing.T, blob []byte) {
		file, err := parseBlob(blob, nil)
		if err != nil {
			return
		}
		var there storedKey
		if json.Unmarshal(blob, &there) != nil {
			return
		}
		same(t, [][]byte{there.Public, there.KeyBlob}, [][]byte{file.Public, file.Private})
		source, err := AKSource(blob, nil)
		if err == nil {
			if _, err := tpm.NewProver(fixed{}, source, tpm.ProverOptions{EK: new(tpm.EKP256())}); err != nil {
				t.Errorf("an AKSource that NewProver refuses: %v", err)
			}
		}
		_, _ = KeyFile(blob, nil)
	})
}
