package tpm

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

type quoteMade struct {
	*statement.QuoteEvidence
	ak *statement.Public
}

// quoteWith quotes as an Attester does.
func quoteWith(t testing.TB, tpm transport.TPM, source AKSource, selection []statement.PCRSelection, qualifyingData []byte) (quoteMade, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (quoteMade, error) {
		ak, err := loadAK(ctx, h, &source, nil, nil)
		if err != nil {
			return quoteMade{}, err
		}
		e, err := quote(ctx, h, ak, selection, qualifyingData)
		return quoteMade{e, ak.Public}, err
	})
}

// measurePCR measures something.
func measurePCR(t testing.TB, tpm transport.TPM, index int) {
	t.Helper()
	if _, err := (tpm2.PCREvent{
		PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(index), Auth: tpm2.PasswordAuth(nil)},
		EventData: tpm2.TPM2BEvent{Buffer: []byte("measured")},
	}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
}

func mustSelect(t testing.TB, bank tpm2.TPMAlgID, indexes ...int) statement.PCRSelection {
	t.Helper()
	s, err := statement.NewPCRSelection(bank, indexes...)
	testkit.NoError(t, err)
	return s
}

func allPCRs() []int {
	all := make([]int, pcrsPerBank)
	for n := range all {
		all[n] = n
	}
	return all
}

func TestQuoteOnTheSimulator(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	testQuotes(t, tpm, map[string][]statement.PCRSelection{
		"default":    DefaultPCRs(),
		"one":        {mustSelect(t, tpm2.TPMAlgSHA256, 10)},
		"all":        {mustSelect(t, tpm2.TPMAlgSHA256, allPCRs()...)},
		"two banks":  {mustSelect(t, tpm2.TPMAlgSHA384, 0, 7, 9), mustSelect(t, tpm2.TPMAlgSHA256, 0, 7)},
		"SHA-1, too": {mustSelect(t, tpm2.TPMAlgSHA256, 0), mustSelect(t, tpm2.TPMAlgSHA1, 0)},
	})
}

func TestQuoteOnSwtpm(t *testing.T) {
	tpm := tpmsim.Swtpm(t, tpmlab.Bare())
	testQuotes(t, tpm, map[string][]statement.PCRSelection{
		"default": DefaultPCRs(),
		"all":     {mustSelect(t, tpm2.TPMAlgSHA256, allPCRs()...)},
	})
}

func testQuotes(t *testing.T, tpm transport.TPM, selections map[string][]statement.PCRSelection) {
	measurePCR(t, tpm, 10)
	qd := sha256.Sum256([]byte("qualifying data"))
	for _, ak := range testAKs {
		for name, selection := range selections {
			t.Run(ak.name+"/"+name, func(t *testing.T) {
				made, err := quoteWith(t, tpm, AKSource{Template: ak.template()}, selection, qd[:])
				testkit.NoError(t, err)
				tpmlab.CheckNothingLoaded(t, tpm)
				q, err := statement.VerifyQuote(made.QuoteEvidence, statement.QuoteOptions{AK: statement.AKFromCredential(made.ak.Raw), QualifyingData: qd[:], Selection: selection, InsecureAllowSHA1Bank: true})
				testkit.NoError(t, err)
				if !q.ClockTrusted {
					t.Error("the clock of an AK in the endorsement hierarchy is not trusted")
				}
			})
		}
	}
}

// A TPM leaves a bank that it has not out of a quote, and says nothing.
func TestQuoteOfABankThatIsNotThere(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	// TPM2_PCR_Allocate, Part 3, 22.5, which go-tpm has not: no PCR in the bank of SHA-512.
	tpmlab.Send(t, tpm, "8002 00000025 0000012b 4000000c 00000009 40000009 0000 00 0000 00000001 000d03000000")
	testkit.NoError(t, tpm.Reset())
	_, err := quoteWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, []statement.PCRSelection{mustSelect(t, tpm2.TPMAlgSHA512, 0)}, []byte("qd"))
	if err == nil || !strings.Contains(err.Error(), "SHA512") {
		t.Errorf("got %v", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestQuoteRefusesWhatNoVerifierAccepts(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	source := AKSource{Template: AKTemplateECDSAP256()}
	for _, selection := range [][]statement.PCRSelection{
		nil,
		{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0}}},
		{mustSelect(t, tpm2.TPMAlgSHA256, 0), mustSelect(t, tpm2.TPMAlgSHA256, 1)},
	} {
		_, err := quoteWith(t, tpm, source, selection, []byte("qd"))
		if !errors.Is(err, statement.CheckPCRSelection) {
			t.Errorf("%v: %v", selection, err)
		}
	}
	for _, qd := range [][]byte{nil, {}} {
		if _, err := quoteWith(t, tpm, source, DefaultPCRs(), qd); err == nil {
			t.Errorf("qualifying data of %d bytes", len(qd))
		}
	}
}

// extending is a TPM whose PCRs are extended before some of its quotes, by another program on the
// machine.
type extending struct {
	transport.TPM
	t     *testing.T
	times int
}

func (e *extending) Send(command []byte) ([]byte, error) {
	if e.times > 0 && tpm2.TPMCC(command[8])<<8|tpm2.TPMCC(command[9]) == tpm2.TPMCCQuote&0xffff {
		e.times--
		measurePCR(e.t, e.TPM, 7)
	}
	return e.TPM.Send(command)
}

func TestQuoteWhilePCRsMove(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	source := AKSource{Template: AKTemplateECDSAP256()}
	for times, want := range map[int]error{1: nil, quoteAttempts - 1: nil, quoteAttempts: refusal.Check("pcr-digest")} {
		made, err := quoteWith(t, &extending{tpm, t, times}, source, DefaultPCRs(), []byte("qd"))
		if !errors.Is(err, want) || errors.Is(err, refusal.ErrRetry) != (want != nil) {
			t.Errorf("%d times: got %v, want %v, to be tried again", times, err, want)
		}
		if err == nil {
			if _, err := statement.VerifyQuote(made.QuoteEvidence, statement.QuoteOptions{AK: statement.AKFromCredential(made.ak.Raw), QualifyingData: []byte("qd")}); err != nil {
				t.Error(err)
			}
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	}
}

// Whatever command fails, the error says so and nothing stays loaded.
func TestQuoteFlushesWhateverFails(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	source := AKSource{Template: AKTemplateECDSAP256()}
	selection := []statement.PCRSelection{mustSelect(t, tpm2.TPMAlgSHA256, allPCRs()...)}
	whole := tpmsim.Faulty(tpm, nil)
	if _, err := quoteWith(t, whole, source, selection, []byte("qd")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for n := 1; n < whole.Count(); n++ { // the last one is the flush
		_, err := quoteWith(t, tpmsim.Faulty(tpm, tpmsim.FailAt(n, broken)), source, selection, []byte("qd"))
		if !errors.Is(err, broken) {
			t.Errorf("command %d: %v", n, err)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	}
}

// The TPM's answer is compared with the command.
func TestQuoteNoticesABrokenTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	source := AKSource{Template: AKTemplateECDSAP256()}
	for name, alter := range map[string]func([]byte){
		"magic": func(b []byte) { b[16] ^= 1 },
		"type":  func(b []byte) { b[21] ^= 0x0f },
	} {
		_, err := quoteWith(t, &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCQuote, Alter: alter}, source, DefaultPCRs(), []byte("qd"))
		if err == nil {
			t.Errorf("%s: not noticed", name)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	}
}

// TestTPM2ToolsQuotes: quotes of tpm2_quote verify here.
func TestTPM2ToolsQuotes(t *testing.T) {
	x := tpmlab.StartTools(t)
	for ak, options := range map[string]string{"ecdsa": "ecc256:ecdsa-sha256:null", "rsassa": "rsa2048:rsassa-sha256:null", "rsapss": "rsa2048:rsapss-sha256:null"} {
		t.Run(ak, func(t *testing.T) {
			x.Run("tpm2_createprimary -Q -C e -g sha256 -G " + options + " -a " + tpmlab.ToolsAKAttributes + " -c " + ak + ".ctx")
			raw, key := x.Area(ak)
			area, err := statement.ParsePublic(raw)
			if err != nil || !area.SameKey(key) {
				t.Fatalf("another key than the tools print (%v)", err)
			}
			x.Run("tpm2_pcrextend 10:sha256=" + strings.Repeat("ab", 32))
			scheme := ""
			if ak == "rsapss" {
				scheme = " --scheme rsapss"
			}
			x.Run("tpm2_quote -Q -c " + ak + ".ctx -l sha256:0,7,10 -q 0badc0de -g sha256 -f tss -F values -m q.attest -s q.sig -o q.pcrs" + scheme)
			e := &statement.QuoteEvidence{Attest: x.Read("q.attest"), Signature: x.Read("q.sig")}
			values := slices.Collect(slices.Chunk(x.Read("q.pcrs"), 32))
			if len(values) != 3 {
				t.Fatalf("%d values", len(values))
			}
			for n, i := range []int{0, 7, 10} {
				e.PCRs = append(e.PCRs, statement.PCR{Bank: tpm2.TPMAlgSHA256, Index: i, Value: values[n]})
			}
			o := statement.QuoteOptions{AK: statement.AKFromCredential(area.Raw), QualifyingData: []byte{0x0b, 0xad, 0xc0, 0xde}}
			q, err := statement.VerifyQuote(e, o)
			if err != nil {
				t.Fatalf("%s: %v", ak, err)
			}
			if !q.ClockTrusted {
				t.Errorf("%s: clock not trusted", ak)
			}
			e.PCRs[2].Value[0] ^= 1
			_, err = statement.VerifyQuote(e, o)
			tpmlab.ExpectCheck(t, err, refusal.Check("pcr-digest"))
		})
	}
}

// TestTPM2ToolsCheckQuote: tpm2_checkquote accepts quotes made here, and refuses the
// smallest changes.
func TestTPM2ToolsCheckQuote(t *testing.T) {
	x := tpmlab.StartTools(t)
	tpm := tpmsim.Swtpm(t, tpmlab.Bare())
	measurePCR(t, tpm, 10)
	for _, ak := range testAKs {
		if ak.name == "P-384" || ak.name == "RSAPSS" {
			continue // tpm2_checkquote 5.4 knows neither
		}
		made, err := quoteWith(t, tpm, AKSource{Template: ak.template()}, []statement.PCRSelection{mustSelect(t, tpm2.TPMAlgSHA256, 0, 7, 10)}, []byte{0xde, 0xad})
		testkit.NoError(t, err)
		key, err := made.ak.Key()
		testkit.NoError(t, err)
		spki, err := x509.MarshalPKIXPublicKey(key)
		testkit.NoError(t, err)
		x.Write("ak.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
		x.Write("q.attest", made.Attest)
		x.Write("q.sig", made.Signature)
		values := slices.Concat(made.PCRs[0].Value, made.PCRs[1].Value, made.PCRs[2].Value)
		x.Write("q.pcrs", values)
		line := "tpm2_checkquote -u ak.pem -m q.attest -s q.sig -f q.pcrs -l sha256:0,7,10 -g sha256 -q "
		if out, err := x.Try(line + "dead"); err != nil {
			t.Errorf("%s: %v\n%s", ak.name, err, out)
		}
		if out, err := x.Try(line + "deae"); err == nil {
			t.Errorf("%s: other qualifying data: %s", ak.name, out)
		}
		values[0] ^= 1
		x.Write("q.pcrs", values)
		if out, err := x.Try(line + "dead"); err == nil {
			t.Errorf("%s: another value: %s", ak.name, out)
		}
		if _, ok := key.(*rsa.PublicKey); ok != (ak.name == "RSASSA") {
			t.Errorf("%s: %T", ak.name, key)
		}
	}
}

func BenchmarkQuote(b *testing.B) {
	tpm := tpmlab.NewTPM(b)
	qd := sha256.Sum256([]byte("qualifying data"))
	for b.Loop() {
		if _, err := quoteWith(b, tpm, AKSource{Template: AKTemplateECDSAP256()}, DefaultPCRs(), qd[:]); err != nil {
			b.Fatal(err)
		}
	}
}
