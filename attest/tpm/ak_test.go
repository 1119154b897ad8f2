package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func akOf(t testing.TB, tpm transport.TPM, source AKSource, password []byte) (*statement.Public, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*statement.Public, error) {
		ak, err := loadAK(ctx, h, &source, nil, password)
		if err != nil {
			return nil, err
		}
		return ak.Public, nil
	})
}

func TestAKSourceNamesOneKey(t *testing.T) {
	template := AKTemplateECDSAP256()
	for _, source := range []AKSource{
		{},
		{CertificateIndex: 0x01c10000},
		{NonceIndex: 0x01c10004},
		{Template: template, TemplateIndex: 0x01c10001},
		{Template: template, Handle: 0x81010002},
		{TemplateIndex: 0x01c10001, Handle: 0x81010002},
		{Template: template, NonceIndex: 0x01c10004},
		{Handle: 0x81010002, NonceIndex: 0x01c10004},
		{Handle: 0x80000000},
		{Handle: 0x01c10001},
	} {
		if err := source.check(); err == nil {
			t.Errorf("%+v accepted", source)
		}
	}
	for _, source := range []AKSource{GCERSA(), GCEECC(), {Template: template}, {Handle: 0x81010002}, {TemplateIndex: 0x01c10001, NonceIndex: 0x01c10004}} {
		if err := source.check(); err != nil {
			t.Errorf("%+v: %v", source, err)
		}
	}
}

func TestLoadAKOfGCE(t *testing.T) {
	const nonceIndex = 0x01c10007
	tpm := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{
		{Algorithm: tpmsim.RSA2048},
		{Algorithm: tpmsim.P256},
		{Algorithm: tpmsim.P384, TemplateIndex: 0x01c10005, CertificateIndex: 0x01c10006, NonceIndex: nonceIndex},
	}})
	withNonce := AKSource{TemplateIndex: 0x01c10005, CertificateIndex: 0x01c10006, NonceIndex: nonceIndex}
	for _, tt := range []struct {
		algorithm tpmsim.Algorithm
		source    AKSource
	}{{tpmsim.RSA2048, GCERSA()}, {tpmsim.P256, GCEECC()}, {tpmsim.P384, withNonce}} {
		t.Run(fmt.Sprint(tt.source), func(t *testing.T) {
			ak, err := akOf(t, tpm, tt.source, nil)
			if err != nil {
				t.Fatalf("%v: %v", tt.algorithm, err)
			}
			if !ak.SameKey(tpm.AKPublic(tt.algorithm)) || !ak.SameKey(tpm.AKCertificate(tt.algorithm).PublicKey) {
				t.Errorf("%v: another key than the certified one", tt.algorithm)
			}
			if _, err := readCertificate(t, tpm, tt.source.CertificateIndex); err != nil {
				t.Error(err)
			}
		})
	}
	// Without its nonce the template gives another key.
	withNonce.NonceIndex = 0
	if ak, err := akOf(t, tpm, withNonce, nil); err != nil || ak.SameKey(tpm.AKPublic(tpmsim.P384)) {
		t.Errorf("without the nonce: the certified key, or error %v", err)
	}
	withNonce.NonceIndex = nonceIndex + 1
	if _, err := akOf(t, tpm, withNonce, nil); !errors.Is(err, tpmop.ErrNVIndexNotFound) || !strings.Contains(err.Error(), "nonce") {
		t.Errorf("nonce that is not provisioned: got %v, want ErrNVIndexNotFound", err)
	}
	tpmlab.WriteNV(t, tpm, nonceIndex, make([]byte, 49))
	withNonce.NonceIndex = nonceIndex
	if _, err := akOf(t, tpm, withNonce, nil); err == nil {
		t.Error("nonce wider than the key accepted")
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestLoadAKFromBadTemplateInNV(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	if _, err := akOf(t, tpm, GCERSA(), nil); !errors.Is(err, tpmop.ErrNVIndexNotFound) {
		t.Errorf("nothing provisioned: got %v, want ErrNVIndexNotFound", err)
	}
	good := tpm2.Marshal(AKTemplateECDSAP256())
	for name, b := range map[string][]byte{
		"trailing byte": append(bytes.Clone(good), 0),
		"cut short":     good[:len(good)-1],
		"size prefix":   append([]byte{0, byte(len(good))}, good...),
		"keyed hash":    tpm2.Marshal(&tpm2.TPMTPublic{Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256, Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgKeyedHash, &tpm2.TPMSKeyedHashParms{Scheme: tpm2.TPMTKeyedHashScheme{Scheme: tpm2.TPMAlgNull}}), Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgKeyedHash, &tpm2.TPM2BDigest{})}),
	} {
		t.Run(name, func(t *testing.T) {
			tpmlab.WriteNV(t, tpm, testIndex, b)
			_, err := akOf(t, tpm, AKSource{TemplateIndex: testIndex}, nil)
			if err == nil || !strings.Contains(err.Error(), "0x01800001") {
				t.Errorf("%s: got %v, want an error that names the index", name, err)
			}
		})
	}
	tpmlab.WriteNV(t, tpm, testIndex, good)
	ak, err := akOf(t, tpm, AKSource{TemplateIndex: testIndex}, nil)
	testkit.NoError(t, err)
	direct, err := akOf(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, nil)
	if err != nil || !bytes.Equal(ak.Raw, direct.Raw) {
		t.Errorf("template in NV and the same one directly give different keys: %v", err)
	}
}

func TestLoadAKFromBadTemplate(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	noParameters := AKTemplateECDSAP256()
	noParameters.Parameters = tpm2.TPMUPublicParms{}
	otherType := AKTemplateECDSAP256()
	otherType.Type = tpm2.TPMAlgRSA
	for name, template := range map[string]*tpm2.TPMTPublic{"empty": {}, "no parameters": noParameters, "other type": otherType} {
		t.Run(name, func(t *testing.T) {
			if _, err := akOf(t, tpm, AKSource{Template: template}, nil); err == nil || !strings.Contains(err.Error(), "template") {
				t.Errorf("%s: got %v, want an error about the template", name, err)
			}
		})
	}
}

// A key that a verifier refuses is refused on the node, with the verifier's check.
func TestLoadAKRefusesWhatVerifiersRefuse(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	signing := akAttributes
	signing.Restricted = false
	for name, tt := range map[string]struct {
		template *tpm2.TPMTPublic
		want     refusal.Check
	}{
		"storage key":      {tpmop.StorageRootKey(), refusal.Check("ak-attributes")},
		"not restricted":   {tpmop.ECCKeyArea(tpm2.TPMSECCParms{CurveID: tpm2.TPMECCNistP256}, signing, nil, nil), refusal.Check("ak-attributes")},
		"restricted, sha1": {sha1Named(), refusal.Check("name-algorithm")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := akOf(t, tpm, AKSource{Template: tt.template}, nil)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", name, err, tt.want)
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		})
	}
}

func sha1Named() *tpm2.TPMTPublic {
	area := AKTemplateECDSAP256()
	area.NameAlg = tpm2.TPMAlgSHA1
	return area
}

func TestLoadAKFromPersistentHandle(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	const handle = 0x81010002
	_, err := akOf(t, tpm, AKSource{Handle: handle}, nil)
	var rc tpm2.TPMRC
	if !errors.As(err, &rc) || !strings.Contains(err.Error(), "0x81010002") {
		t.Errorf("no such key: got %v, want the TPM's code and the handle", err)
	}
	tpmlab.Persist(t, tpm, tpm2.TPMRHEndorsement, AKTemplateECDSAP256(), handle)
	ak, err := akOf(t, tpm, AKSource{Handle: handle}, nil)
	testkit.NoError(t, err)
	if want := primaryKey(t, tpm, tpm2.Marshal(AKTemplateECDSAP256())); !bytes.Equal(ak.Raw, want.Raw) {
		t.Errorf("got %x, want %x", ak.Raw, want.Raw)
	}
	if _, err := akOf(t, tpm, AKSource{Handle: handle}, nil); err != nil {
		t.Errorf("the persistent key is gone after its first use: %v", err)
	}
}

func TestLoadAKWithEndorsementPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	secret := []byte("correct horse")
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHEndorsement, nil, secret)
	source := AKSource{Template: AKTemplateECDSAP256()}
	if _, err := akOf(t, tpm, source, secret); err != nil {
		t.Errorf("right password: %v", err)
	}
	for name, password := range map[string][]byte{"missing": nil, "wrong": []byte("battery staple")} {
		_, err := akOf(t, tpm, source, password)
		if !errors.Is(err, ErrHierarchyPassword) || !errors.Is(err, tpm2.TPMRCBadAuth) || !strings.Contains(err.Error(), "endorsement") {
			t.Errorf("%s: got %v, want ErrHierarchyPassword and TPM_RC_BAD_AUTH", name, err)
		}
		if strings.Contains(err.Error(), "horse") || strings.Contains(err.Error(), "battery") {
			t.Errorf("%s: the error shows a password: %v", name, err)
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// Another program's wrong guesses lock keys without noDA. Ours go on.
func TestAKTemplatesSurviveALockout(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.DefineNV(t, tpm, testIndex, tpm2.TPMANV{OwnerWrite: true, AuthRead: true, NT: tpm2.TPMNTOrdinary}, 1, []byte{1})
	pub, err := tpm2.NVReadPublic{NVIndex: testIndex}.Execute(tpm)
	testkit.NoError(t, err)
	guess := tpm2.NVRead{AuthHandle: tpmop.WithPassword(testIndex, pub.NVName.Buffer, []byte("guess")),
		NVIndex: tpm2.NamedHandle{Handle: testIndex, Name: pub.NVName}, Size: 1}
	for range 40 {
		if _, err = guess.Execute(tpm); errors.Is(err, tpm2.TPMRCLockout) {
			break
		}
	}
	if !errors.Is(err, tpm2.TPMRCLockout) {
		t.Fatalf("the TPM is not locked: %v", err)
	}
	for _, key := range []tpmkey.Certifiable{mustSoftwareKey(t, tpmlab.NewECDSA(t, p256)), mustTPMKey(t, tpm, tpmkey.ECDSAP256)} {
		if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1}); err != nil {
			t.Errorf("%T: %v", key, err)
		}
	}
}

// A panic of the caller's code does not leave the TPM taken, nor objects in it.
func TestSharedTPMAfterAPanic(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	shared := tpmop.Share(tpm)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		shared.Do(t.Context(), func(h *tpmop.Handles) error {
			if _, err := loadAK(t.Context(), h, &AKSource{Template: AKTemplateECDSAP256()}, nil, nil); err != nil {
				t.Error(err)
			}
			panic("on purpose")
		})
	}()
	tpmlab.CheckNothingLoaded(t, shared)
}

// What could not be flushed is flushed at the next use, but not if its handle is
// another object's by then.
func TestHandlesRetry(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	loadOne := func(tpm transport.TPM) error {
		_, err := akOf(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, nil)
		return err
	}
	t.Run("not flushed", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCFlushContext, tpm2.TPMRCFailure))
		shared := tpmop.Share(faulty)
		if err := loadOne(shared); !errors.Is(err, tpm2.TPMRCFailure) {
			t.Errorf("got %v, want the error of flushing", err)
		}
		if len(tpmlab.LoadedHandles(t, tpm)) != 1 {
			t.Error("the test does not test: nothing is left loaded")
		}
		if err := shared.FlushLeft(t.Context()); err == nil {
			t.Error("flushLeft says that nothing is left")
		}
		faulty.SetFaults(nil)
		if err := loadOne(shared); err != nil {
			t.Error(err)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	})
	t.Run("flushed, but the answer was lost, and the handle is another's", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.LoseAt(2))
		shared := tpmop.Share(faulty)
		if err := loadOne(shared); !errors.Is(err, tpmsim.ErrInjected) {
			t.Errorf("got %v, want the error of flushing", err)
		}
		other, err := (tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(*tpmop.StorageRootKey())}).Execute(tpm)
		testkit.NoError(t, err)
		if err := loadOne(shared); err != nil {
			t.Error(err)
		}
		if got := tpmlab.LoadedHandles(t, tpm); len(got) != 1 || got[0] != other.ObjectHandle {
			t.Errorf("loaded %x, want %x alone", got, other.ObjectHandle)
		}
		if err := tpmop.FlushContext(tpm, other.ObjectHandle); err != nil {
			t.Error(err)
		}
	})
}
