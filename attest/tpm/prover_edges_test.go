package tpm

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// badPassword is one that no TPM takes.
var badPassword = []byte("a\x00b")

// Commands that a TPM cannot execute are not sent.
func TestNothingIsSent(t *testing.T) {
	tpm := tpmsim.Faulty(tpmlab.NewTPM(t), nil)
	ecdsaAK := AKSource{Template: AKTemplateECDSAP256()}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	otherPolicy := EKP256()
	otherPolicy.TemplateIndex, otherPolicy.NonceIndex = 0, 0
	otherPolicy.Template.AuthPolicy = tpm2.TPM2BDigest{Buffer: filled(32, 1)}
	withAK := func(use func(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey) error) func(context.Context, *tpmop.Handles) error {
		return func(ctx context.Context, h *tpmop.Handles) error {
			ak, err := loadAK(ctx, h, &ecdsaAK, nil, nil)
			testkit.NoError(t, err)
			return use(ctx, h, ak)
		}
	}
	ekArea := func() *tpmop.LoadedKey {
		p, err := statement.ParsePublic(tpm2.Marshal(EKP256().Template))
		testkit.NoError(t, err)
		return &tpmop.LoadedKey{Handle: 0x80000000, Public: p}
	}
	for name, c := range map[string]struct {
		never tpm2.TPMCC // 0 stands for all
		want  error
		run   func(ctx context.Context, h *tpmop.Handles) error
	}{
		"an AK without a source": {0, nil, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := loadAK(ctx, h, &AKSource{}, nil, nil)
			return err
		}},
		"an AK of two sources": {0, nil, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := loadAK(ctx, h, &AKSource{Template: ecdsaAK.Template, Handle: 0x81000001}, nil, nil)
			return err
		}},
		"no index": {0, nil, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := tpmop.ReadNV(ctx, h, 0x81000001)
			return err
		}},
		"a command too late": {0, context.Canceled, func(_ context.Context, h *tpmop.Handles) error {
			_, err := tpmop.Run(cancelled, h.TPM, tpm2.GetRandom{BytesRequested: 1}, "TPM2_GetRandom")
			return err
		}},
		"a key too late": {0, context.Canceled, func(_ context.Context, h *tpmop.Handles) error {
			_, err := tpmop.Load(cancelled, h, nil, tpm2.CreatePrimary{PrimaryHandle: tpmop.WithPassword(tpm2.TPMRHEndorsement, nil, nil),
				InPublic: tpm2.New2B(*AKTemplateECDSAP256())}, "TPM2_CreatePrimary")
			return err
		}},
		"a primary key with a bad password": {tpm2.TPMCCCreatePrimary, tpmop.ErrNullInPassword, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, badPassword, tpm2.Marshal(AKTemplateECDSAP256()))
			return err
		}},
		"a statement about a key with a bad password": {tpm2.TPMCCCertify, tpmop.ErrNullInPassword, withAK(func(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey) error {
			other, err := tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, nil, tpm2.Marshal(AKTemplateECDSAP384()))
			testkit.NoError(t, err)
			other.Password = secret.New(badPassword)
			public, err := other.Public.Key()
			testkit.NoError(t, err)
			_, err = certify(ctx, h, ak, heldKey{key: public, loaded: other}, []byte("qd"))
			return err
		})},
		"a statement by an AK with a bad password": {tpm2.TPMCCCertify, tpmop.ErrNullInPassword, withAK(func(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey) error {
			ak.Password = secret.New(badPassword)
			_, err := certify(ctx, h, ak, mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256())), []byte("qd"))
			return err
		})},
		"a quote by an AK with a bad password": {tpm2.TPMCCQuote, tpmop.ErrNullInPassword, withAK(func(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey) error {
			ak.Password = secret.New(badPassword)
			_, err := quote(ctx, h, ak, DefaultPCRs(), []byte("qd"))
			return err
		})},
		"an answer about a key of another kind": {0, nil, func(ctx context.Context, h *tpmop.Handles) error {
			_, ed, err := ed25519.GenerateKey(rand.Reader)
			testkit.NoError(t, err)
			_, err = (&session{handles: h}).Answer(ctx, ed, nil)
			return err
		}},
		"a quote of nothing": {tpm2.TPMCCQuote, statement.CheckPCRSelection, withAK(func(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey) error {
			_, err := quote(ctx, h, ak, nil, []byte("qd"))
			return err
		})},
		"a session of an EK that does not parse": {0, nil, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := h.EKSession(ctx, &tpmop.LoadedKey{Public: &statement.Public{Raw: []byte{1}, NameAlg: tpm2.TPMAlgSHA256}}, nil)
			return err
		}},
		"the hierarchy's password, in a session of an EK that does not parse": {0, nil, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := h.EndorsementAuth(ctx, &tpmop.LoadedKey{Public: &statement.Public{Raw: []byte{1}, NameAlg: tpm2.TPMAlgSHA256}}, []byte("password"))
			return err
		}},
		"the hierarchy's bad password": {0, tpmop.ErrNullInPassword, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := h.EndorsementAuth(ctx, ekArea(), badPassword)
			return err
		}},
		"a policy with the hierarchy's bad password": {tpm2.TPMCCPolicySecret, tpmop.ErrNullInPassword, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := h.AuthorizeEK(ctx, ekArea(), badPassword)
			return err
		}},
		"an EK with a policy of its own": {tpm2.TPMCCStartAuthSession, nil, withAK(func(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey) error {
			ek, err := loadEK(ctx, h, &otherPolicy, nil)
			testkit.NoError(t, err)
			_, err = activate(ctx, h, ak, ek, nil, &attest.Credential{IDObject: []byte{1}, EncryptedSecret: []byte{1}})
			return err
		})},
	} {
		t.Run(name, func(t *testing.T) {
			tpm.SetFaults(nil)
			_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (struct{}, error) { return struct{}{}, c.run(ctx, h) })
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if sent := tpm.Count(); c.never == 0 && sent != 0 || c.never != 0 && tpmlab.Count(tpm, c.never) != 0 {
				t.Errorf("sent %v", tpm.Commands())
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		})
	}
}

// The TPM's answer is compared with the command, and a refusal is final.
func TestAnswersOfBrokenTPMs(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	source := AKSource{Template: AKTemplateECDSAP256()}
	broken := tpmsim.Faulty(&tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCQuote, Alter: func(b []byte) { b[21] ^= 0x0f }}, nil)
	if _, err := quoteWith(t, broken, source, DefaultPCRs(), []byte("qd")); !errors.Is(err, refusal.Check("attest-encoding")) || tpmlab.Count(broken, tpm2.TPMCCQuote) != 1 {
		t.Errorf("a quote of another type: %v after %d quotes", err, tpmlab.Count(broken, tpm2.TPMCCQuote))
	}
	synctest.Test(t, func(t *testing.T) {
		again := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCQuote, tpm2.TPMRCRetry))
		if _, err := quoteWith(t, again, source, DefaultPCRs(), []byte("qd")); !errors.Is(err, tpm2.TPMRCRetry) || tpmlab.Count(again, tpm2.TPMCCQuote) != tpmop.MaxTries {
			t.Errorf("retry: %v after %d quotes", err, tpmlab.Count(again, tpm2.TPMCCQuote))
		}
	})
	other := tpmsim.Faulty(&otherBank{tpm}, nil)
	if _, err := quoteWith(t, other, source, DefaultPCRs(), []byte("qd")); !errors.Is(err, refusal.Check("pcr-value")) || tpmlab.Count(other, tpm2.TPMCCQuote) != 0 {
		t.Errorf("values of SHA-1: %v after %v", err, other.Commands())
	}
	longest := make([]byte, 64)
	if _, err := quoteWith(t, tpm, source, DefaultPCRs(), longest); err != nil {
		t.Errorf("64 bytes of qualifying data: %v", err)
	}
	key := mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256()))
	if _, err := certifyWith(t, tpm, source, key, longest); err != nil {
		t.Errorf("64 bytes of qualifying data: %v", err)
	}
	for name, c := range map[string]struct {
		code  tpm2.TPMCC
		alter func([]byte)
		run   func(ctx context.Context, h *tpmop.Handles) error
	}{
		"an area of an NV index that ends": {tpm2.TPMCCNVReadPublic, func(b []byte) { b[23] = 0xff }, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := tpmop.ReadNV(ctx, h, 0x01c00a00)
			return err
		}},
		"handles in place of properties": {tpm2.TPMCCGetCapability, func(b []byte) { b[14], b[18] = 1, 2 }, func(ctx context.Context, h *tpmop.Handles) error {
			_, _, err := tpmop.TPMProperty(ctx, h, tpm2.TPMPTNVBufferMax)
			return err
		}},
		"commands in place of NV indexes": {tpm2.TPMCCGetCapability, func(b []byte) { b[14] = 2 }, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := nvIndexes(ctx, h, firstEKChainIndex, lastEKChainIndex)
			return err
		}},
		"commands in place of sessions": {tpm2.TPMCCGetCapability, func(b []byte) { b[14] = 2 }, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := h.LoadedSessions(ctx)
			return err
		}},
		"an NV index before the first": {tpm2.TPMCCGetCapability, func(b []byte) { binary.BigEndian.PutUint32(b[19:], uint32(firstEKChainIndex)-1) }, func(ctx context.Context, h *tpmop.Handles) error {
			_, err := nvIndexes(ctx, h, firstEKChainIndex, lastEKChainIndex)
			return err
		}},
	} {
		tpmlab.WriteNV(t, tpm, 0x01c00a00, []byte("content"))
		tpmlab.WriteNV(t, tpm, firstEKChainIndex, []byte("content"))
		t.Run(name, func(t *testing.T) {
			whole := func(tpm transport.TPM) error {
				_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (struct{}, error) { return struct{}{}, c.run(ctx, h) })
				return err
			}
			testkit.NoError(t, whole(tpm))
			if err := whole(&tpmlab.Altered{TPM: tpm, Code: c.code, Alter: c.alter}); err == nil {
				t.Error("not noticed")
			}
		})
	}
	t.Run("commands in place of objects", func(t *testing.T) {
		lost := tpmsim.Faulty(&tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(b []byte) { b[14] = 2 }},
			tpmsim.At(1, tpmsim.Fault{Err: tpmsim.ErrInjected}))
		_, err := do(t, lost, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
			return loadAK(ctx, h, &source, nil, nil)
		})
		if !errors.Is(err, tpmsim.ErrInjected) {
			t.Errorf("got %v", err)
		}
	})
	tpmlab.CheckNothingLoaded(t, tpm)
}

// otherBank asks the TPM for PCRs of SHA-1 in place of SHA-256.
type otherBank struct{ transport.TPM }

func (o *otherBank) Send(command []byte) ([]byte, error) {
	if tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) == tpm2.TPMCCPCRRead {
		command = bytes.Clone(command)
		binary.BigEndian.PutUint16(command[14:], uint16(tpm2.TPMAlgSHA1))
	}
	return o.TPM.Send(command)
}

// Where the response with a new handle is lost, the object is found by its public area, and no
// other program's is flushed.
func TestLostResponsesLeaveOthersAlone(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	source := AKSource{Template: AKTemplateECDSAP256()}
	resident := mustTPMKey(t, tpm, tpmkey.ECDSAP256)
	file := resident.File()
	software := mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256()))
	made, err := tpm2.CreatePrimary{PrimaryHandle: tpmop.WithPassword(tpm2.TPMRHNull, nil, nil), InPublic: tpm2.New2B(*AKTemplateECDSAP384())}.Execute(tpm)
	testkit.NoError(t, err)
	others := []tpm2.TPMHandle{made.ObjectHandle}
	certifies := func(key func(tpm transport.TPM) tpmkey.Certifiable) func(*testing.T, transport.TPM) error {
		return func(t *testing.T, tpm transport.TPM) error {
			_, err := certifyWith(t, tpm, source, key(tpm), []byte("qd"))
			return err
		}
	}
	for name, c := range map[string]struct {
		code tpm2.TPMCC
		warm bool
		run  func(*testing.T, transport.TPM) error
	}{
		"an attestation key": {tpm2.TPMCCCreatePrimary, false, func(t *testing.T, tpm transport.TPM) error {
			_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
				return loadAK(ctx, h, &source, nil, nil)
			})
			return err
		}},
		"a software key": {tpm2.TPMCCLoadExternal, false, certifies(func(transport.TPM) tpmkey.Certifiable { return software })},
		"a key in the TPM": {tpm2.TPMCCContextLoad, false, func(t *testing.T, tpm transport.TPM) error {
			_, err := do(t, tpm, resident.Load)
			return err
		}},
		"a key from a file": {tpm2.TPMCCLoad, false, func(t *testing.T, tpm transport.TPM) error {
			_, err := tpmkey.Load(t.Context(), tpm, file, tpmkey.LoadOptions{})
			return err
		}},
		"the key of sessions": {tpm2.TPMCCContextLoad, true, certifies(func(transport.TPM) tpmkey.Certifiable { return software })},
	} {
		t.Run(name, func(t *testing.T) {
			faulty := tpmsim.Faulty(tpm, nil)
			shared := tpmop.Share(faulty)
			if c.warm {
				testkit.NoError(t, c.run(t, shared))
			}
			faulty.SetFaults(tpmsim.Every(c.code, tpmsim.Fault{Err: tpmsim.ErrInjected, Late: true}))
			if err := c.run(t, shared); !errors.Is(err, tpmsim.ErrInjected) {
				t.Errorf("got %v", err)
			}
			if left := tpmlab.LoadedHandles(t, tpm); !slices.Equal(left, others) {
				t.Errorf("loaded: %x, want %x", left, others)
			}
		})
	}
}

// A key whose public area does not match the Name from the TPM, or whose point is not on the curve.
func TestAreasOfBrokenTPMs(t *testing.T) {
	good := softak.PublicArea(tpmlab.P256().Public(), softak.AKAttributes, softak.ECDSA)
	for name, c := range map[string]struct {
		name, area []byte
		good       bool
	}{
		"good": {good.Name(), good.Raw, true}, "another Name": {tpmlab.DigestName(1), good.Raw, false},
		"no Name": {nil, good.Raw, false}, "no area": {good.Name(), nil, false}, "a cut area": {good.Name(), good.Raw[:20], false},
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := tpmop.NewLoadedKey(0x80000000, c.name, c.area); c.good != (err == nil) || c.good != (k != nil) {
				t.Errorf("%s: %v, %v", name, k, err)
			}
		})
	}
	tpm := tpmlab.NewTPM(t)
	const handle = 0x81000123
	tpmlab.Persist(t, tpm, tpm2.TPMRHEndorsement, AKTemplateECDSAP256(), handle)
	offCurve := &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCReadPublic, Alter: func(b []byte) {
		size := int(binary.BigEndian.Uint16(b[10:]))
		area := b[12 : 12+size]
		area[size-1] ^= 1
		sum := sha256.Sum256(area)
		copy(b[12+size+4:], sum[:])
	}}
	a := newTestAttester(t, offCurve, AKSource{Handle: handle}, ProverOptions{Certificates: [][]byte{{0x30, 0}}})
	subject := subjectOfTest(t, tpmlab.NewECDSA(t, elliptic.P256()))
	if _, err := a.Hello(t.Context(), subject); !errors.Is(err, statement.CheckPoint) {
		t.Errorf("a point off its curve: %v", err)
	}
}

// A refusal of a hierarchy says which one it is and whether it was given a password.
func TestWordsOfHierarchies(t *testing.T) {
	for hierarchy, word := range map[tpm2.TPMHandle]string{
		tpm2.TPMRHEndorsement: "endorsement", tpm2.TPMRHOwner: "owner", tpm2.TPMRHNull: "null", tpm2.TPMRHPlatform: "0x4000000c",
	} {
		for password, said := range map[string]string{"": "none was given", "p": "another password"} {
			for _, rc := range []tpm2.TPMRC{tpm2.TPMRCBadAuth, tpm2.TPMRCAuthFail} {
				err := tpmop.ExplainPassword(rc, hierarchy, []byte(password))
				if !errors.Is(err, ErrHierarchyPassword) || !errors.Is(err, rc) ||
					!strings.Contains(err.Error(), "the "+word+" hierarchy has ") || !strings.Contains(err.Error(), said) {
					t.Errorf("%q: %v", password, err)
				}
			}
			if err := tpmop.ExplainPassword(tpm2.TPMRCHierarchy|0x100, hierarchy, []byte(password)); errors.Is(err, ErrHierarchyPassword) ||
				!errors.Is(err, tpm2.TPMRCHierarchy) || !strings.Contains(err.Error(), "the "+word+" hierarchy is switched off") {
				t.Errorf("switched off: %v", err)
			}
			if err := tpmop.ExplainPassword(tpm2.TPMRCFailure, hierarchy, []byte(password)); err != tpm2.TPMRCFailure { //nolint:errorlint // the very error
				t.Errorf("another failure: %v", err)
			}
		}
	}
	if attest.RoadAK.String() != "ak" || attest.RoadEK.String() != "ek" || attest.RoadDocument.String() != "document" || attest.Road(3).String() != "road(3)" {
		t.Error("the words of the roads")
	}
}

// A TPM's refusal is a wrong password's, or a credential's, by its response code alone.
func TestWordsOfRefusals(t *testing.T) {
	for code, want := range map[tpm2.TPMRC]error{
		tpm2.TPMRCBadAuth: tpmkey.ErrPassword, tpm2.TPMRCAuthFail: tpmkey.ErrPassword, tpm2.TPMRCLockout: nil,
		tpm2.TPMRCIntegrity: checkCredential, tpm2.TPMRCECCPoint: checkCredential, tpm2.TPMRCSize: checkCredential, tpm2.TPMRCValue: checkCredential,
		tpm2.TPMRCInsufficient: checkCredential, tpm2.TPMRCFailure: checkCredential, tpm2.TPMRCHandle: nil, tpm2.TPMRCScheme: nil,
	} {
		t.Run(code.Error(), func(t *testing.T) {
			if err := tpmop.ExplainKeyPassword(code); !errors.Is(err, code) || errors.Is(err, tpmkey.ErrPassword) != errors.Is(want, tpmkey.ErrPassword) {
				t.Errorf("password: %v", err)
			}
			if isBadCredential(code) != errors.Is(want, checkCredential) {
				t.Error("credential")
			}
		})
	}
}
