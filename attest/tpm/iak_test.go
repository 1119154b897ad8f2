package tpm_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// What makers of machines write, and the index of their certificates.
const (
	iakHandle = 0x81020001
	iakIndex  = 0x01c90100
)

var (
	rsaH1   = &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537}
	oem     = tpmcert.HardwareIdentity{Issuer: "sim"}
	oemSelf = "hwserial:sim/SIM%20:5F2C9E0A41B7D3866C10:01A4"
)

// iakTemplates are the templates H-1 to H-4, by name.
func iakTemplates() map[string][]*tpm2.TPMTPublic {
	templates := map[string][]*tpm2.TPMTPublic{"H-1": tpmkind.IAKTemplates(rsaH1)}
	for n, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		templates[fmt.Sprintf("H-%d", n+2)] = tpmkind.IAKTemplates(&ecdsa.PublicKey{Curve: curve})
	}
	return templates
}

// The templates are the document's, byte for byte, and swtpm's.
func TestIAKTemplates(t *testing.T) {
	corpus := os.Getenv("NODEATTEST_CORPUS")
	for name, templates := range iakTemplates() {
		t.Run(name, func(t *testing.T) {
			for _, template := range templates {
				if a := template.ObjectAttributes; tpm2.Marshal(a) == nil || statement.Attributes(attributesOf(a)) != 0x500f2 {
					t.Errorf("attributes %x, want 0x500f2", attributesOf(a))
				}
				if got, want := template.AuthPolicy.Buffer, iakPolicy(t, template.NameAlg); !bytes.Equal(got, want) {
					t.Errorf("policy %x, computed %x", got, want)
				}
			}
			if corpus == "" {
				t.Skip("NODEATTEST_CORPUS is not set: it names a directory of recorded templates")
			}
			want, err := os.ReadFile(filepath.Join(corpus, "oem/generated", name+".iak.template"))
			testkit.NoError(t, err)
			if got := tpm2.Marshal(templates[0]); !bytes.Equal(got, want) {
				t.Errorf("template\n%x, want\n%x", got, want)
			}
		})
	}
	for _, key := range []crypto.PublicKey{&ecdsa.PublicKey{Curve: elliptic.P224()}, &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 3071)}, nil} {
		if got := tpmkind.IAKTemplates(key); got != nil {
			t.Errorf("%T: %d templates", key, len(got))
		}
	}
}

func attributesOf(a tpm2.TPMAObject) (bits uint32) {
	for _, b := range tpm2.Marshal(a) {
		bits = bits<<8 | uint32(b)
	}
	return bits
}

// iakPolicy is the policy that go-tpm's calculator arrives at.
func iakPolicy(t *testing.T, hash tpm2.TPMIAlgHash) []byte {
	t.Helper()
	digest := func(commands ...tpm2.PolicyCommand) tpm2.TPM2BDigest {
		state, err := tpm2.NewPolicyCalculator(hash)
		testkit.NoError(t, err)
		for _, c := range commands {
			testkit.NoError(t, c.Update(state))
		}
		return tpm2.TPM2BDigest{Buffer: state.Hash().Digest}
	}
	user := tpm2.PolicySecret{AuthHandle: tpm2.TPMRHEndorsement}
	u := digest(user)
	c := digest(user, tpm2.PolicyCommandCode{Code: tpm2.TPMCCCertify})
	a := digest(user, tpm2.PolicyCommandCode{Code: tpm2.TPMCCActivateCredential})
	area := tpm2.TPMSNVPublic{NVIndex: map[tpm2.TPMIAlgHash]tpm2.TPMHandle{tpm2.TPMAlgSHA256: 0x01c90018, tpm2.TPMAlgSHA384: 0x01c90019, tpm2.TPMAlgSHA512: 0x01c9001a}[hash],
		NameAlg: hash, AuthPolicy: u, DataSize: uint16(len(u.Buffer) + 2)}
	attributes, err := tpm2.Unmarshal[tpm2.TPMANV]([]byte{0x22, 0x0f, 0x10, 0x08})
	testkit.NoError(t, err)
	area.Attributes = *attributes
	name, err := tpm2.NVName(&area)
	testkit.NoError(t, err)
	// Part 3, 23.22: H(zeros ‖ TPM_CC_PolicyAuthorizeNV ‖ Name).
	h, err := hash.Hash()
	testkit.NoError(t, err)
	state := h.New()
	state.Write(make([]byte, h.Size()))
	state.Write([]byte{0x00, 0x00, 0x01, 0x92})
	state.Write(name.Buffer)
	n := tpm2.TPM2BDigest{Buffer: state.Sum(nil)}
	return digest(tpm2.PolicyOr{PHashList: tpm2.TPMLDigest{Digests: []tpm2.TPM2BDigest{u, c, a, n}}}).Buffer
}

// maker has the TPM's CA certify the key of a template, and writes chain and certificate
// where makers do.
func maker(t *testing.T, device *tpmsim.TPM, template *tpm2.TPMTPublic) {
	t.Helper()
	_, certificates := certified(t, device, template)
	testkit.NoError(t, device.WriteNV(iakIndex, bytes.Join([][]byte{certificates[1], certificates[0]}, nil)))
}

// persistIAK makes a key of a template persistent, with a password.
func persistIAK(t *testing.T, device *tpmsim.TPM, template *tpm2.TPMTPublic, password string) {
	t.Helper()
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(*template),
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{UserAuth: tpm2.TPM2BAuth{Buffer: []byte(password)}}}}.Execute(device)
	testkit.NoError(t, err)
	object := &tpm2.NamedHandle{Handle: rsp.ObjectHandle, Name: rsp.Name}
	if _, err = (tpm2.EvictControl{Auth: tpm2.TPMRHOwner, ObjectHandle: object, PersistentHandle: iakHandle}).Execute(device); err != nil {
		t.Fatal(err)
	}
	if _, err = (tpm2.FlushContext{FlushHandle: rsp.ObjectHandle}).Execute(device); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		object := &tpm2.NamedHandle{Handle: iakHandle, Name: rsp.Name}
		if _, err = (tpm2.EvictControl{Auth: tpm2.TPMRHOwner, ObjectHandle: object, PersistentHandle: iakHandle}).Execute(device); err != nil {
			t.Error(err)
		}
	})
}

// oemDevice is a maker's machine without keys.
func oemDevice() tpmsim.Options {
	return tpmsim.Options{Device: tpmsim.DefaultDevice(), EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}}
}

// oemJoin is a whole join of a maker's machine, with all that its TPM keeps.
func oemJoin(t *testing.T, device *tpmsim.TPM, way transport.TPM, password string, key tpmkey.Algorithm) error {
	t.Helper()
	ctx := context.Background()
	options := tpmkind.ProverOptions{AKPassword: secret.New([]byte(password)), Quote: tpmkind.DefaultPCRs()}
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, AK: tpmkind.OEMIAK(), Profile: tpmcert.ProfileOEM(oem), TPMKey: key})
	if way == nil {
		way = node.Shared
	}
	node.Attester = attesterOf(t, way, tpmkind.OEMIAK(), options)
	plane, err := attesttest.OpenControlPlane(node)
	if err != nil {
		return err
	}
	request, err := plane.Evidence(ctx, node)
	if err != nil {
		return err
	}
	r, err := plane.Verifier.Verify(ctx, request)
	if err != nil {
		return err
	}
	if string(r.Machine) != oemSelf || !tpmkind.DetailsOf(r).AKPrimary || len(tpmkind.DetailsOf(r).Measured.Quote.PCRs()) == 0 {
		t.Errorf("machine %s, primary %t, want %s", r.Machine, tpmkind.DetailsOf(r).AKPrimary, oemSelf)
	}
	_, err = plane.CA.Issue(ctx, r.Attested())
	return err
}

func TestOEMJoinsOnTheSimulator(t *testing.T) {
	testOEMJoins(t, tpmsim.New(t, oemDevice()))
}

func TestOEMJoinsOnSwtpm(t *testing.T) {
	testOEMJoins(t, tpmsim.Swtpm(t, oemDevice()))
}

// Whichever template a maker takes, its key is found, and joins; made anew, persistent, and
// persistent with a password.
func testOEMJoins(t *testing.T, device *tpmsim.TPM) {
	for name, templates := range iakTemplates() {
		for n, template := range templates {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				if _, err := tpmkind.AKPublic(t.Context(), device, tpmkind.AKSource{Template: template}, secret.Value[[]byte]{}); errors.Is(err, tpm2.TPMRCCurve) {
					t.Skip("this TPM has no such curve")
				}
				maker(t, device, template)
				if err := oemJoin(t, device, nil, "", tpmkey.ECDSAP256); err != nil {
					t.Error(err)
				}
				if n != 0 {
					return
				}
				t.Run("persistent", func(t *testing.T) {
					persistIAK(t, device, template, "")
					counting := tpmsim.Faulty(device, nil)
					if err := oemJoin(t, device, counting, "", 0); err != nil {
						t.Error(err)
					}
					if n := tpmlab.Count(counting, tpm2.TPMCCCreatePrimary); n > 1 { // of the session's key
						t.Errorf("%d primary keys were made", n)
					}
				})
				t.Run("with a password", func(t *testing.T) {
					persistIAK(t, device, template, "the maker's")
					if err := oemJoin(t, device, nil, "the maker's", tpmkey.RSA2048); err != nil {
						t.Error(err)
					}
					if name != "H-2" {
						return // a few wrong ones lock the TPM: a maker's key does not have noDA
					}
					err := oemJoin(t, device, nil, "guessed", tpmkey.ECDSAP256)
					if !errors.Is(err, tpmkey.ErrPassword) || strings.Contains(err.Error(), "guessed") {
						t.Errorf("the wrong password: %v", err)
					}
					tpmlab.ForgetPasswords(t, device)
				})
			})
		}
	}
	noHandles(t, device)
}

// What stands at the handle of makers and is another key is passed over.
func TestOEMHandleTakenByAnotherKey(t *testing.T) {
	device := tpmsim.New(t, oemDevice())
	template := tpmkind.IAKTemplates(&ecdsa.PublicKey{Curve: elliptic.P256()})[1]
	maker(t, device, template)
	persistIAK(t, device, tpmkind.AKTemplateECDSAP384(), "another's")
	if err := oemJoin(t, device, nil, "another's", 0); err != nil {
		t.Error(err)
	}
}

// Among the certificates of a maker, the leaf is the one that issued no other, however that
// one spells its issuer's name.
func TestOEMIssuerInAnotherSpelling(t *testing.T) {
	device := tpmsim.New(t, oemDevice())
	template := tpmkind.IAKTemplates(&ecdsa.PublicKey{Curve: elliptic.P256()})[0]
	public, err := tpmkind.AKPublic(t.Context(), device, tpmkind.AKSource{Template: template}, secret.Value[[]byte]{})
	testkit.NoError(t, err)
	key, err := public.Key()
	testkit.NoError(t, err)
	middle := tpmlab.Sign(t, tpmlab.Sign(t, nil, "root", nil), "maker", nil)
	inCapitals := *middle.Cert
	inCapitals.RawSubject = bytes.ToUpper(middle.Cert.RawSubject)
	leaf := tpmlab.Issued(t, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "machine"}, NotBefore: tpmlab.Time, NotAfter: tpmlab.Time},
		&tpmlab.CA{Cert: &inCapitals, Key: middle.Key}, key)
	testkit.NoError(t, device.WriteNV(iakIndex, slices.Concat(leaf.Raw, middle.Cert.Raw)))
	if _, err := tpmkind.AKPublic(t.Context(), device, tpmkind.OEMIAK(), secret.Value[[]byte]{}); err != nil {
		t.Error(err)
	}
}

func TestOEMKeyThatIsNotThere(t *testing.T) {
	device := tpmsim.New(t, oemDevice())
	template := tpmkind.IAKTemplates(&ecdsa.PublicKey{Curve: elliptic.P256()})[0]
	public := func() error {
		_, err := tpmkind.AKPublic(t.Context(), device, tpmkind.OEMIAK(), secret.Value[[]byte]{})
		return err
	}
	if err := public(); !errors.Is(err, tpmkey.ErrNVIndexNotFound) {
		t.Errorf("no certificate: %v", err)
	}
	testkit.NoError(t, device.WriteNV(iakIndex, device.CA().Root().Raw))
	if err := public(); !errors.Is(err, tpmkey.ErrNVIndexNotFound) {
		t.Errorf("a root alone: %v", err)
	}
	testkit.NoError(t, device.WriteNV(iakIndex, []byte("no certificate")))
	if err := public(); !errors.Is(err, refusal.Check("ek-chain-encoding")) {
		t.Errorf("no certificate in the index: %v", err)
	}
	maker(t, device, template)
	if err := public(); err != nil {
		t.Error(err)
	}
	maker(t, device, tpmkind.AKTemplateECDSAP256()) // as if it were another machine's
	if err := public(); !errors.Is(err, tpmkind.ErrIAK) || !errors.Is(err, tpm2.TPMRCHandle) {
		t.Errorf("another key's certificate: %v", err)
	}
	for _, code := range []tpm2.TPMCC{tpm2.TPMCCReadPublic, tpm2.TPMCCCreatePrimary} { // which keys there are cannot be told
		full := tpmsim.Faulty(device, tpmsim.FailEvery(code, tpm2.TPMRCObjectMemory))
		_, err := tpmkind.AKPublic(t.Context(), full, tpmkind.OEMIAK(), secret.Value[[]byte]{})
		if !errors.Is(err, refusal.ErrRetry) || errors.Is(err, tpmkind.ErrIAK) || tpmlab.Count(full, code) != 1 {
			t.Errorf("a full TPM: %v", err)
		}
	}
	other := forgeRSA3072(t)
	leaf, err := device.CertifyAK(other)
	testkit.NoError(t, err)
	testkit.NoError(t, device.WriteNV(iakIndex, leaf.Raw))
	if err := public(); !errors.Is(err, tpmkind.ErrIAK) {
		t.Errorf("a kind of key that no template makes: %v", err)
	}
	if _, err := (tpm2.HierarchyChangeAuth{AuthHandle: tpm2.TPMRHEndorsement, NewAuth: tpm2.TPM2BAuth{Buffer: []byte("owned")}}).Execute(device); err != nil {
		t.Fatal(err)
	}
	maker2 := func() { // the certificate of the first template
		t.Helper()
		public, err := tpmkind.AKPublic(t.Context(), device, tpmkind.AKSource{Template: template}, secret.New([]byte("owned")))
		testkit.NoError(t, err)
		key, _ := public.Key()
		leaf, err := device.CertifyAK(key)
		if err == nil {
			err = device.WriteNV(iakIndex, leaf.Raw)
		}
		testkit.NoError(t, err)
	}
	maker2()
	if err := public(); !errors.Is(err, tpmkind.ErrHierarchyPassword) || errors.Is(err, tpmkind.ErrIAK) {
		t.Errorf("a hierarchy with a password: %v", err)
	}
	noHandles(t, device)
}

func forgeRSA3072(t *testing.T) crypto.PublicKey {
	t.Helper()
	for name, o := range keyOptions(t, 3072) {
		if name == "software RSA-3072" {
			return o.Key.Public()
		}
	}
	return nil
}

// The indexes behind the IAK's have the IDevID's certificates, which are not used.
func TestOEMIndexes(t *testing.T) {
	const lastIAKIndex, idevidIndex = 0x01c901ff, 0x01c90200
	device := tpmsim.New(t, oemDevice())
	_, certificates := certified(t, device, tpmkind.IAKTemplates(&ecdsa.PublicKey{Curve: elliptic.P256()})[0])
	_, idevid := certified(t, device, tpmkind.IAKTemplates(&ecdsa.PublicKey{Curve: elliptic.P384()})[0])
	leaf, above, others := certificates[0], certificates[1], bytes.Join([][]byte{idevid[1], idevid[0]}, nil)
	for _, c := range []struct { // in this order: writes stay
		name  string
		index tpm2.TPMHandle
		nv    []byte
		want  error
	}{
		{"an IDevID's certificates alone", idevidIndex, others, tpmkey.ErrNVIndexNotFound},
		{"the IAK's certificate, its intermediate among the IDevID's", iakIndex, leaf, tpmcert.CheckCertificateChain},
		{"the intermediate in the last index", lastIAKIndex, above, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkit.NoError(t, device.WriteNV(c.index, c.nv))
			if err := oemJoin(t, device, nil, "", tpmkey.ECDSAP256); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// The certificates may come from elsewhere, or the intermediates alone.
func TestOEMCertificatesFromElsewhere(t *testing.T) {
	device := tpmsim.New(t, oemDevice())
	template := tpmkind.IAKTemplates(&ecdsa.PublicKey{Curve: elliptic.P384()})[2]
	_, certificates := certified(t, device, template)
	profile := tpmcert.ProfileOEM(oem)
	ctx := context.Background()
	for name, c := range map[string]struct {
		options tpmkind.ProverOptions
		want    error
	}{
		"intermediates without a certificate": {tpmkind.ProverOptions{Intermediates: certificates[1:]}, tpmkey.ErrNVIndexNotFound},
		"no certificate among them":           {tpmkind.ProverOptions{Certificates: [][]byte{{0x30, 0}}}, tpmcert.CheckCertificateEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := tpmkind.NewProver(device, tpmkind.OEMIAK(), c.options)
			testkit.NoError(t, err)
			err = p.Use(ctx, attest.StageHello, func(attest.Session) error { t.Error("used"); return nil })
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	for name, o := range map[string]struct {
		nv      []byte
		options tpmkind.ProverOptions
	}{
		"all":               {nil, tpmkind.ProverOptions{Certificates: certificates}},
		"the intermediates": {certificates[0], tpmkind.ProverOptions{Intermediates: certificates[1:]}},
	} {
		t.Run(name, func(t *testing.T) {
			if o.nv != nil {
				testkit.NoError(t, device.WriteNV(iakIndex, o.nv))
			}
			node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, AK: tpmkind.OEMIAK(), Profile: profile, Certificates: certificates})
			node.Attester = attesterOf(t, node.Shared, tpmkind.OEMIAK(), o.options)
			if _, err := attesttest.NewControlPlane(t, node).Join(ctx, node); err != nil {
				t.Error(err)
			}
		})
	}
	for name, o := range map[string]struct {
		source  tpmkind.AKSource
		options tpmkind.ProverOptions
	}{
		"an index of one's own":     {tpmkind.AKSource{OEM: true, CertificateIndex: iakIndex}, tpmkind.ProverOptions{}},
		"a handle next to it":       {tpmkind.AKSource{OEM: true, Handle: iakHandle}, tpmkind.ProverOptions{}},
		"the road of the EK":        {tpmkind.OEMIAK(), tpmkind.ProverOptions{EK: new(tpmkind.EKRSA2048())}},
		"a password on that road":   {tpmkind.GCERSA(), tpmkind.ProverOptions{EK: new(tpmkind.EKRSA2048()), AKPassword: secret.New([]byte("x"))}},
		"both kinds of certificate": {tpmkind.OEMIAK(), tpmkind.ProverOptions{Certificates: certificates, Intermediates: certificates}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tpmkind.NewProver(device, o.source, o.options); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
