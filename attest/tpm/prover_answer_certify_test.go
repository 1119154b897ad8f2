package tpm

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"math/big"
	"os/exec"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
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
	*statement.CertifyEvidence
	ak *statement.Public
}

// certifyWith runs an Attester's steps: an AK from a template, a key, one
// statement.
func certifyWith(t testing.TB, tpm transport.TPM, source AKSource, key tpmkey.Certifiable, qualifyingData []byte) (certified, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (certified, error) {
		ak, err := loadAK(ctx, h, &source, nil, nil)
		if err != nil {
			return certified{}, err
		}
		c, err := certify(ctx, h, ak, key, qualifyingData)
		return certified{c, ak.Public}, err
	})
}

func TestCertifyEveryPairOnTheSimulator(t *testing.T) {
	testEveryPair(t, tpmlab.NewTPM(t), []keyUnderTest{
		{"software P-256", func(t testing.TB, _ transport.TPM) tpmkey.Certifiable {
			return mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256()))
		}, false},
		{"software P-384", func(t testing.TB, _ transport.TPM) tpmkey.Certifiable {
			return mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P384()))
		}, false},
		{"software RSA-2048", func(t testing.TB, _ transport.TPM) tpmkey.Certifiable {
			return mustSoftwareKey(t, tpmlab.RSA2048())
		}, false},
		{"TPM P-256", func(t testing.TB, tpm transport.TPM) tpmkey.Certifiable { return mustTPMKey(t, tpm, tpmkey.ECDSAP256) }, true},
		{"TPM RSA-2048", func(t testing.TB, tpm transport.TPM) tpmkey.Certifiable { return mustTPMKey(t, tpm, tpmkey.RSA2048) }, true},
	})
}

// swtpm has RSA-3072, which the simulator has not.
func TestCertifyEveryPairOnSwtpm(t *testing.T) {
	testEveryPair(t, tpmsim.Swtpm(t, tpmlab.Bare()), []keyUnderTest{
		{"software P-256", func(t testing.TB, _ transport.TPM) tpmkey.Certifiable {
			return mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256()))
		}, false},
		{"software P-521", func(t testing.TB, _ transport.TPM) tpmkey.Certifiable {
			return mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P521()))
		}, false},
		{"software RSA-2048", func(t testing.TB, _ transport.TPM) tpmkey.Certifiable {
			return mustSoftwareKey(t, tpmlab.RSA2048())
		}, false},
		{"software RSA-3072", func(t testing.TB, _ transport.TPM) tpmkey.Certifiable {
			return mustSoftwareKey(t, tpmlab.RSA3072())
		}, false},
		{"TPM P-256", func(t testing.TB, tpm transport.TPM) tpmkey.Certifiable { return mustTPMKey(t, tpm, tpmkey.ECDSAP256) }, true},
		{"TPM P-384", func(t testing.TB, tpm transport.TPM) tpmkey.Certifiable { return mustTPMKey(t, tpm, tpmkey.ECDSAP384) }, true},
		{"TPM RSA-2048", func(t testing.TB, tpm transport.TPM) tpmkey.Certifiable { return mustTPMKey(t, tpm, tpmkey.RSA2048) }, true},
		{"TPM RSA-3072", func(t testing.TB, tpm transport.TPM) tpmkey.Certifiable { return mustTPMKey(t, tpm, tpmkey.RSA3072) }, true},
	})
}

type keyUnderTest struct {
	name     string
	make     func(testing.TB, transport.TPM) tpmkey.Certifiable
	resident bool
}

func testEveryPair(t *testing.T, tpm transport.TPM, keys []keyUnderTest) {
	shared := tpmop.Share(tpm)
	for _, k := range keys {
		key := k.make(t, shared)
		for _, ak := range testAKs {
			t.Run(ak.name+" certifies "+k.name, func(t *testing.T) {
				qd := sha256.Sum256([]byte(t.Name()))
				c, err := certifyWith(t, shared, AKSource{Template: ak.template()}, key, qd[:])
				testkit.NoError(t, err)
				checkStatement(t, c, key.Public(), qd[:], k.resident)
				tpmlab.CheckNothingLoaded(t, tpm)
				if k.name == keys[0].name {
					opensslVerifies(t, c)
				}
			})
		}
	}
}

// opensslVerifies has OpenSSL verify the signature of a statement.
func opensslVerifies(t *testing.T, c certified) {
	t.Helper()
	key, err := c.ak.Key()
	testkit.NoError(t, err)
	spki, err := x509.MarshalPKIXPublicKey(key)
	testkit.NoError(t, err)
	sig, err := tpm2.Unmarshal[tpm2.TPMTSignature](c.Signature)
	testkit.NoError(t, err)
	raw, err := signatureBytes(sig)
	testkit.NoError(t, err)
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Log("openssl is not installed: not checked with it (Debian: apt-get install openssl)")
		return
	}
	x := &tpmlab.Tools{T: t, Dir: t.TempDir()}
	for name, content := range map[string][]byte{"key": spki, "signature": raw, "statement": c.Attest} {
		x.Write(name, content)
	}
	line := "openssl dgst -sha256"
	if c.ak.Scheme.Hash == tpm2.TPMAlgSHA384 {
		line = "openssl dgst -sha384"
	}
	if c.ak.Scheme.Alg == tpm2.TPMAlgRSAPSS {
		line += " -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32"
	}
	x.Run(line + " -keyform DER -verify key -signature signature statement")
}

// checkStatement verifies a statement with go-tpm's reader and the standard
// library alone.
func checkStatement(t *testing.T, c certified, key crypto.PublicKey, qualifyingData []byte, resident bool) {
	t.Helper()
	verifySignature(t, c)
	a, err := tpm2.Unmarshal[tpm2.TPMSAttest](c.Attest)
	testkit.NoError(t, err)
	info, err := a.Attested.Certify()
	testkit.NoError(t, err)
	if a.Magic != tpm2.TPMGeneratedValue || !bytes.Equal(a.ExtraData.Buffer, qualifyingData) {
		t.Errorf("magic %x, extraData %x", a.Magic, a.ExtraData.Buffer)
	}
	area, err := tpm2.Unmarshal[tpm2.TPMTPublic](c.Public)
	testkit.NoError(t, err)
	name, err := tpm2.ObjectName(area)
	testkit.NoError(t, err)
	if !bytes.Equal(name.Buffer, info.Name.Buffer) {
		t.Errorf("certified Name %x, the public area has %x", info.Name.Buffer, name.Buffer)
	}
	got, err := tpm2.Pub(*area)
	testkit.NoError(t, err)
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
	testkit.NoError(t, err)
	sig, err := tpm2.Unmarshal[tpm2.TPMTSignature](c.Signature)
	testkit.NoError(t, err)
	hash := crypto.SHA256
	if c.ak.Scheme.Hash == tpm2.TPMAlgSHA384 {
		hash = crypto.SHA384
	}
	h := hash.New()
	h.Write(c.Attest)
	digest := h.Sum(nil)
	switch c.ak.Scheme.Alg {
	case tpm2.TPMAlgRSASSA:
		s, err := sig.Signature.RSASSA()
		testkit.NoError(t, err)
		err = rsa.VerifyPKCS1v15(key.(*rsa.PublicKey), hash, digest, s.Sig.Buffer)
		if err != nil {
			t.Error(err)
		}
	case tpm2.TPMAlgRSAPSS:
		s, err := sig.Signature.RSAPSS()
		testkit.NoError(t, err)
		err = rsa.VerifyPSS(key.(*rsa.PublicKey), hash, digest, s.Sig.Buffer, &rsa.PSSOptions{SaltLength: hash.Size()})
		if err != nil {
			t.Error(err)
		}
	case tpm2.TPMAlgECDSA:
		s, err := sig.Signature.ECDSA()
		testkit.NoError(t, err)
		if !ecdsa.Verify(key.(*ecdsa.PublicKey), digest, new(big.Int).SetBytes(s.SignatureR.Buffer), new(big.Int).SetBytes(s.SignatureS.Buffer)) {
			t.Error("ECDSA signature is bad")
		}
	default:
		t.Errorf("scheme %v", c.ak.Scheme)
	}
}

func TestCertifyRefusesQualifyingDataOfNoUse(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	key := mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256()))
	for _, qd := range [][]byte{nil, {}} {
		if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, qd); err == nil {
			t.Errorf("%d bytes of qualifying data accepted", len(qd))
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// For every n, the nth command fails in each way there is, and nothing stays in
// the TPM: at once, or, where flushing or the whole connection is what failed,
// after the next use.
func TestCertifyFlushesWhateverFails(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	ways := []struct {
		name   string
		faults func(n int) tpmsim.Faults
		want   error
	}{
		{"not sent", func(n int) tpmsim.Faults { return tpmsim.FailAt(n, nil) }, tpmsim.ErrInjected},
		{"response lost", tpmsim.LoseAt, tpmsim.ErrInjected},
		{"refused", func(n int) tpmsim.Faults { return tpmsim.AnswerAt(n, tpm2.TPMRCFailure) }, tpm2.TPMRCFailure},
		{"connection lost", tpmsim.DropAt, tpmsim.ErrDropped},
	}
	for _, key := range []tpmkey.Certifiable{mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256())), mustTPMKey(t, tpm, tpmkey.ECDSAP256)} {
		faulty := tpmsim.Faulty(tpm, nil)
		if _, err := certifyWith(t, faulty, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1}); err != nil {
			t.Fatal(err)
		}
		commands := faulty.Commands()
		for n, code := range commands {
			for _, way := range ways {
				faulty.SetFaults(way.faults(n + 1))
				shared := tpmop.Share(faulty)
				_, err := certifyWith(t, shared, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1})
				optional := code == tpm2.TPMCCContextSave && !faulty.Dropped()
				if !errors.Is(err, way.want) && !optional {
					t.Errorf("command %d %s: got %v, want %v", n+1, way.name, err, way.want)
				}
				if code == tpm2.TPMCCFlushContext || faulty.Dropped() {
					faulty.SetFaults(nil)
					if err := shared.FlushLeft(t.Context()); err != nil {
						t.Errorf("command %d %s, then flushing again: %v", n+1, way.name, err)
					}
				}
				tpmlab.CheckNothingLoaded(t, tpm)
			}
		}
		cancelAfterEach(t, tpm, key, len(commands))
	}
}

func cancelAfterEach(t *testing.T, tpm transport.TPM, key tpmkey.Certifiable, total int) {
	t.Helper()
	for n := 1; n <= total; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		// During the nth command, which the TPM still answers.
		faulty := tpmsim.Faulty(tpm, tpmsim.At(n, tpmsim.Fault{Before: cancel}))
		certified := false
		err := tpmop.Share(faulty).Do(ctx, func(h *tpmop.Handles) error {
			ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil, nil)
			if err != nil {
				return err
			}
			_, err = certify(ctx, h, ak, key, []byte{1})
			certified = err == nil
			return err
		})
		if !certified && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in command %d of %d: got %v", n, total, err)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
		cancel()
	}
}

func TestCertifyNoticesABrokenTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	key := mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256()))
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
			broken := &tpmlab.Altered{TPM: tpm, Code: change.code, Alter: change.alter}
			if _, err := certifyWith(t, broken, AKSource{Template: AKTemplateECDSAP256()}, key, qd); err == nil {
				t.Error("accepted")
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		})
	}
}

func TestCertifyRefusesTheAKItself(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.Persist(t, tpm, tpm2.TPMRHEndorsement, AKTemplateECDSAP256(), 0x81010002)
	_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (any, error) {
		ak, err := loadAK(ctx, h, &AKSource{Handle: 0x81010002}, nil, nil)
		if err != nil {
			return nil, err
		}
		key, err := ak.Public.Key()
		if err != nil {
			return nil, err
		}
		_, err = certify(ctx, h, ak, heldKey{key: key, loaded: ak}, []byte{1})
		return nil, err
	})
	if err == nil {
		t.Error("the attestation key was certified as a key for a request")
	}
}

func TestCertifyRefusesAKeyOfAnotherTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	key := mustTPMKey(t, tpm, tpmkey.ECDSAP256)
	other := otherKey{key, tpmlab.NewECDSA(t, elliptic.P256()).Public()}
	if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, other, []byte{1}); err == nil {
		t.Error("certified a key that is not the one asked for")
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// heldKey is a key that is in the TPM already.
type heldKey struct {
	crypto.Signer
	key    crypto.PublicKey
	loaded *tpmop.LoadedKey
}

func (k heldKey) Public() crypto.PublicKey { return k.key }

func (k heldKey) Load(context.Context, *tpmop.Handles) (*tpmop.LoadedKey, error) {
	return k.loaded, nil
}

// otherKey is a key of the TPM that names another public key as its own.
type otherKey struct {
	*tpmkey.Key
	key crypto.PublicKey
}

func (k otherKey) Public() crypto.PublicKey { return k.key }
