package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

var testAKs = []struct {
	name     string
	template func() *tpm2.TPMTPublic
}{
	{"RSASSA", AKTemplateRSA2048SHA256},
	{"RSAPSS", AKTemplateRSA2048PSS},
	{"P-256", AKTemplateECDSAP256},
	{"P-384", AKTemplateECDSAP384},
}

type certified struct {
	*certification
	ak *Public
}

// certifyWith runs what an Attester runs: an AK from a template, a key, one
// statement.
func certifyWith(t testing.TB, tpm transport.TPM, source AKSource, key Key, qualifyingData []byte) (certified, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *handles) (certified, error) {
		ak, err := loadAK(ctx, h, &source, nil)
		if err != nil {
			return certified{}, err
		}
		c, err := certify(ctx, h, ak, key, qualifyingData)
		return certified{c, ak.public}, err
	})
}

func TestCertifyEveryPairOnTheSimulator(t *testing.T) {
	testEveryPair(t, newTPM(t), []keyUnderTest{
		{"software P-256", func(t testing.TB, _ transport.TPM) Key { return mustSoftwareKey(t, newECDSA(t, elliptic.P256())) }, false},
		{"software P-384", func(t testing.TB, _ transport.TPM) Key { return mustSoftwareKey(t, newECDSA(t, elliptic.P384())) }, false},
		{"software RSA-2048", func(t testing.TB, _ transport.TPM) Key { return mustSoftwareKey(t, newRSA(t, 2048)) }, false},
		{"TPM P-256", func(t testing.TB, tpm transport.TPM) Key { return mustTPMKey(t, tpm, KeyECDSAP256) }, true},
		{"TPM RSA-2048", func(t testing.TB, tpm transport.TPM) Key { return mustTPMKey(t, tpm, KeyRSA2048) }, true},
	})
}

type keyUnderTest struct {
	name     string
	make     func(testing.TB, transport.TPM) Key
	resident bool
}

func testEveryPair(t *testing.T, tpm transport.TPM, keys []keyUnderTest) {
	shared := ShareTPM(tpm)
	for _, k := range keys {
		key := k.make(t, shared)
		for _, ak := range testAKs {
			t.Run(ak.name+" certifies "+k.name, func(t *testing.T) {
				qd := sha256.Sum256([]byte(t.Name()))
				c, err := certifyWith(t, shared, AKSource{Template: ak.template()}, key, qd[:])
				if err != nil {
					t.Fatal(err)
				}
				checkStatement(t, c, key.Public(), qd[:], k.resident)
				checkNothingLoaded(t, tpm)
			})
		}
	}
}

// checkStatement verifies a statement with go-tpm's reader and the standard
// library alone.
func checkStatement(t *testing.T, c certified, key crypto.PublicKey, qualifyingData []byte, resident bool) {
	t.Helper()
	verifySignature(t, c)
	a, err := tpm2.Unmarshal[tpm2.TPMSAttest](c.attest)
	if err != nil {
		t.Fatal(err)
	}
	info, err := a.Attested.Certify()
	if err != nil {
		t.Fatal(err)
	}
	if a.Magic != tpm2.TPMGeneratedValue || !bytes.Equal(a.ExtraData.Buffer, qualifyingData) {
		t.Errorf("magic %x, extraData %x", a.Magic, a.ExtraData.Buffer)
	}
	area, err := tpm2.Unmarshal[tpm2.TPMTPublic](c.public)
	if err != nil {
		t.Fatal(err)
	}
	name, err := tpm2.ObjectName(area)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(name.Buffer, info.Name.Buffer) {
		t.Errorf("certified Name %x, the public area has %x", info.Name.Buffer, name.Buffer)
	}
	got, err := tpm2.Pub(*area)
	if err != nil {
		t.Fatal(err)
	}
	if !got.(interface{ Equal(crypto.PublicKey) bool }).Equal(key) {
		t.Error("another key was certified")
	}
	if r := !bytes.Equal(info.QualifiedName.Buffer, info.Name.Buffer); r != resident || area.ObjectAttributes.FixedTPM != resident {
		t.Errorf("resident: qualified Name says %v, fixedTPM %v, want %v", r, area.ObjectAttributes.FixedTPM, resident)
	}
}

func verifySignature(t *testing.T, c certified) {
	t.Helper()
	key, err := c.ak.Key()
	if err != nil {
		t.Fatal(err)
	}
	sig, err := tpm2.Unmarshal[tpm2.TPMTSignature](c.signature)
	if err != nil {
		t.Fatal(err)
	}
	hash := crypto.SHA256
	if c.ak.Scheme.Hash == tpm2.TPMAlgSHA384 {
		hash = crypto.SHA384
	}
	h := hash.New()
	h.Write(c.attest)
	digest := h.Sum(nil)
	switch c.ak.Scheme.Alg {
	case tpm2.TPMAlgRSASSA:
		s, err := sig.Signature.RSASSA()
		if err != nil {
			t.Fatal(err)
		}
		err = rsa.VerifyPKCS1v15(key.(*rsa.PublicKey), hash, digest, s.Sig.Buffer)
		if err != nil {
			t.Error(err)
		}
	case tpm2.TPMAlgRSAPSS:
		s, err := sig.Signature.RSAPSS()
		if err != nil {
			t.Fatal(err)
		}
		err = rsa.VerifyPSS(key.(*rsa.PublicKey), hash, digest, s.Sig.Buffer, &rsa.PSSOptions{SaltLength: hash.Size()})
		if err != nil {
			t.Error(err)
		}
	case tpm2.TPMAlgECDSA:
		s, err := sig.Signature.ECDSA()
		if err != nil {
			t.Fatal(err)
		}
		if !ecdsa.Verify(key.(*ecdsa.PublicKey), digest, new(big.Int).SetBytes(s.SignatureR.Buffer), new(big.Int).SetBytes(s.SignatureS.Buffer)) {
			t.Error("ECDSA signature is bad")
		}
	default:
		t.Errorf("scheme %v", c.ak.Scheme)
	}
}

func TestCertifyRefusesQualifyingDataOfNoUse(t *testing.T) {
	tpm := newTPM(t)
	key := mustSoftwareKey(t, newECDSA(t, elliptic.P256()))
	for _, qd := range [][]byte{nil, {}, make([]byte, 65)} {
		if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, qd); err == nil {
			t.Errorf("%d bytes of qualifying data accepted", len(qd))
		}
	}
	checkNothingLoaded(t, tpm)
}

// For every n: the nth command fails, and nothing stays loaded. Then the same
// with the response lost on its way, a TPM's response code, and cancellation.
func TestCertifyFlushesWhateverFails(t *testing.T) {
	tpm := newTPM(t)
	soft := mustSoftwareKey(t, newECDSA(t, elliptic.P256()))
	resident := mustTPMKey(t, tpm, KeyECDSAP256)
	for _, key := range []Key{soft, resident} {
		count := &scripted{TPM: tpm}
		if _, err := certifyWith(t, count, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1}); err != nil {
			t.Fatal(err)
		}
		total := len(count.codes)
		for n := 1; n <= total; n++ {
			failAt(t, tpm, key, n, "dropped", func() ([]byte, error) { return nil, errDropped }, errDropped)
			failAt(t, tpm, key, n, "refused", func() ([]byte, error) { return response(tpm2.TPMRCRetry), nil }, tpm2.TPMRCRetry)
			cancelAt(t, tpm, key, n, total)
		}
	}
}

func failAt(t *testing.T, tpm transport.TPM, key Key, n int, how string, fault func() ([]byte, error), want error) {
	t.Helper()
	faulty := &scripted{TPM: tpm, before: func(i int, _ tpm2.TPMCC) ([]byte, error) {
		if i == n {
			return fault()
		}
		return nil, nil
	}}
	shared := ShareTPM(faulty)
	c, err := certifyWith(t, shared, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1})
	if !errors.Is(err, want) {
		t.Errorf("command %d %s: got %v, want %v", n, how, err, want)
	}
	_ = c
	if faulty.codes[n-1] == tpm2.TPMCCFlushContext {
		if err := shared.flushLeft(t.Context()); err != nil {
			t.Errorf("command %d %s, then flushing again: %v", n, how, err)
		}
	}
	checkNothingLoaded(t, tpm)
}

func cancelAt(t *testing.T, tpm transport.TPM, key Key, n, total int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	faulty := &scripted{TPM: tpm, after: func(i int, _ tpm2.TPMCC, rsp []byte) ([]byte, error) {
		if i == n {
			cancel()
		}
		return rsp, nil
	}}
	flushes := 0
	err := ShareTPM(faulty).do(ctx, func(h *handles) error {
		ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil)
		if err != nil {
			return err
		}
		_, err = certify(ctx, h, ak, key, []byte{1})
		return err
	})
	flushes = faulty.count(tpm2.TPMCCFlushContext)
	if n < total-flushes && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled after command %d of %d: got %v", n, total, err)
	}
	checkNothingLoaded(t, tpm)
}

func TestCertifyNoticesABrokenTPM(t *testing.T) {
	tpm := newTPM(t)
	key := mustSoftwareKey(t, newECDSA(t, elliptic.P256()))
	qd := bytes.Repeat([]byte{0xA7}, 32)
	for name, change := range map[string]struct {
		code  tpm2.TPMCC
		alter func(rsp []byte)
	}{
		"qualifying data": {tpm2.TPMCCCertify, func(rsp []byte) { rsp[bytes.Index(rsp, qd)] ^= 1 }},
		"magic":           {tpm2.TPMCCCertify, func(rsp []byte) { rsp[bytes.Index(rsp, []byte("\xffTCG"))] ^= 1 }},
		"certified Name":  {tpm2.TPMCCCertify, func(rsp []byte) { rsp[bytes.Index(rsp, qd)+32+17+8+10] ^= 1 }},
		"Name of the key": {tpm2.TPMCCReadPublic, func(rsp []byte) { rsp[len(rsp)-40] ^= 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			broken := &scripted{TPM: tpm, after: func(_ int, code tpm2.TPMCC, rsp []byte) ([]byte, error) {
				if code == change.code {
					change.alter(rsp)
				}
				return rsp, nil
			}}
			if _, err := certifyWith(t, broken, AKSource{Template: AKTemplateECDSAP256()}, key, qd); err == nil {
				t.Error("accepted")
			}
			checkNothingLoaded(t, tpm)
		})
	}
}

func TestCertifyRefusesTheAKItself(t *testing.T) {
	tpm := newTPM(t)
	persist(t, tpm, tpm2.TPMRHEndorsement, AKTemplateECDSAP256(), 0x81010002)
	_, err := do(t, tpm, func(ctx context.Context, h *handles) (any, error) {
		ak, err := loadAK(ctx, h, &AKSource{Handle: 0x81010002}, nil)
		if err != nil {
			return nil, err
		}
		key, err := ak.public.Key()
		if err != nil {
			return nil, err
		}
		_, err = certify(ctx, h, ak, &TPMKey{key: key, public: ak.public, name: ak.name, held: ak.handle}, []byte{1})
		return nil, err
	})
	if err == nil {
		t.Error("the attestation key was certified as a key for a request")
	}
}

func TestCertifyRefusesAKeyOfAnotherTPM(t *testing.T) {
	tpm := newTPM(t)
	key := mustTPMKey(t, tpm, KeyECDSAP256)
	other := &TPMKey{tpm: key.tpm, key: newECDSA(t, elliptic.P256()).Public(), public: key.public, name: key.name, saved: key.saved}
	if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, other, []byte{1}); err == nil {
		t.Error("certified a key that is not the one asked for")
	}
	checkNothingLoaded(t, tpm)
}
