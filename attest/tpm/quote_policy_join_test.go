package tpm_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// quotePolicyFunc is a QuotePolicy by a function.
type quotePolicyFunc func(ctx context.Context, m *tpmkind.Measured) error

func (f quotePolicyFunc) CheckQuote(ctx context.Context, m *tpmkind.Measured) error { return f(ctx, m) }

// logOfTest stands for a log: the verifier hands it on as it came.
func logOfTest(context.Context) ([]byte, error) { return []byte("an event log"), nil }

// A quote and a log travel in the answer, on both roads.
func TestJoinWithQuote(t *testing.T) {
	ctx := context.Background()
	device := tpmsim.New(t, tpmsim.Options{})
	for name, o := range map[string]attesttest.NodeOptions{
		"road AK":      {},
		"road EK":      {Road: attest.RoadEK, AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}},
		"key in a TPM": {TPMKey: tpmkey.ECDSAP256},
	} {
		t.Run(name, func(t *testing.T) {
			o.TPM, o.Quote, o.EventLog = device, tpmkind.DefaultPCRs(), logOfTest
			s := newStage(t, o)
			var asked *tpmkind.Measured
			s.plane.TPM.QuotePolicy = quotePolicyFunc(func(_ context.Context, m *tpmkind.Measured) error {
				asked = m
				return nil
			})
			r, err := planeVerifier(t, s.plane).Verify(ctx, s.good)
			testkit.NoError(t, err)
			if asked == nil || asked != tpmkind.DetailsOf(r).Measured || string(asked.EventLog) != "an event log" || len(asked.Quote.PCRs()) != 8 {
				t.Errorf("the policy was given %+v", asked)
			}
			if n := strings.Count(factsOf(r), ": PCR SHA256:"); n != 8 {
				t.Errorf("%d PCRs among the facts:\n%s", n, factsOf(r))
			}
			if _, err := s.plane.CA.Issue(ctx, r.Attested()); err != nil {
				t.Error(err)
			}
			noHandles(t, device)
		})
	}
}

func factsOf(r *attest.Result) string {
	var b strings.Builder
	for _, f := range r.Facts() {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// The policy decides, and a PCR that the quote does not cover is refused.
func TestQuotePolicyOfVerifier(t *testing.T) {
	ctx := context.Background()
	device := tpmsim.New(t, tpmsim.Options{})
	for pcr := range tpm2.TPMHandle(8) {
		tpmlab.ExtendPCR(t, device, pcr)
	}
	s := newStage(t, attesttest.NodeOptions{TPM: device, Quote: tpmkind.DefaultPCRs()})
	r, err := s.plane.Verifier.Verify(ctx, s.good)
	testkit.NoError(t, err)
	exact := func(pcrs ...statement.PCR) tpmkind.QuotePolicy {
		p, err := tpmkind.NewPCRPolicy(pcrs)
		testkit.NoError(t, err)
		return p
	}
	good := tpmkind.DetailsOf(r).Measured.Quote.PCRs()
	bad := slices.Clone(good)
	bad[7].Value = bytes.Clone(bad[7].Value)
	bad[7].Value[0] ^= 1
	retry := refusal.Retry(errors.New("the store of good values is away"))
	for name, c := range map[string]struct {
		policy tpmkind.QuotePolicy
		want   error
	}{
		"these very values":  {exact(good...), nil},
		"one bit of one":     {exact(bad...), refusal.Check("pcr-policy")},
		"one that is not":    {exact(statement.PCR{Bank: tpm2.TPMAlgSHA256, Index: 8, Value: bytes.Repeat([]byte{1}, 32)}), statement.CheckPCRNotQuoted},
		"a bank that is not": {exact(statement.PCR{Bank: tpm2.TPMAlgSHA384, Index: 0, Value: bytes.Repeat([]byte{1}, 48)}), statement.CheckPCRNotQuoted},
		"undecided":          {quotePolicyFunc(func(context.Context, *tpmkind.Measured) error { return retry }), refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			kind := s.plane.TPM
			kind.QuotePolicy = c.policy
			v, _ := verifierOf(t, s.plane.Config, kind)
			r, err := v.Verify(ctx, s.good)
			if !errors.Is(err, c.want) || (r == nil) != (err != nil) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// A node that shows nothing is refused where there is a policy.
func TestQuoteMissing(t *testing.T) {
	ctx := context.Background()
	s := newStage(t, attesttest.NodeOptions{})
	s.plane.TPM.QuotePolicy = quotePolicyFunc(func(context.Context, *tpmkind.Measured) error { return nil })
	_, err := planeVerifier(t, s.plane).Verify(ctx, s.good)
	if !errors.Is(err, refusal.Check("quote-missing")) {
		t.Errorf("got %v", err)
	}
	if d := csr.Decide(err); d.Verdict != csr.VerdictDeny || d.Reason != "QuoteMissing" {
		t.Errorf("decision %+v", d)
	}
}

// With QuoteOptional the policy decides about an answer without a quote, and knows the machine.
func TestQuoteOptional(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	var asked *tpmkind.Measured
	refuses := errors.New("no quote")
	for _, want := range []error{nil, refuses} {
		s.plane.TPM.QuoteOptional = true
		s.plane.TPM.QuotePolicy = quotePolicyFunc(func(_ context.Context, m *tpmkind.Measured) error { asked = m; return want })
		r, err := planeVerifier(t, s.plane).Verify(t.Context(), s.good)
		if !errors.Is(err, want) || asked == nil || asked.Quote != nil || r != nil && asked.Machine != r.Machine || asked.Machine == "" {
			t.Errorf("got %v, %+v, want %v", err, asked, want)
		}
	}
	policy, err := tpmkind.NewPCRPolicy([]statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 7, Value: bytes.Repeat([]byte{1}, 32)}})
	testkit.NoError(t, err)
	s.plane.TPM.QuotePolicy = policy
	if _, err := planeVerifier(t, s.plane).Verify(t.Context(), s.good); !errors.Is(err, refusal.Check("quote-missing")) {
		t.Errorf("a policy of values: got %v", err)
	}
}

// Each change of an answer's quote is refused, whether or not there is a policy.
func TestChangedQuoteInAnswer(t *testing.T) {
	ctx := context.Background()
	s := newStage(t, attesttest.NodeOptions{Quote: tpmkind.DefaultPCRs(), EventLog: logOfTest})
	other, err := s.plane.Evidence(ctx, s.node) // the same node, another challenge
	testkit.NoError(t, err)
	earlier := takeApart(t, other).att.Statements[2]
	edit := func(change func(*statement.QuoteEvidence)) func(*parts) {
		return func(p *parts) {
			e, err := statement.ParseQuote(p.att.Statements[2].Stmt)
			testkit.NoError(t, err)
			change(e)
			if p.att.Statements[2].Stmt, err = statement.MarshalQuote(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*parts)
		want   error
	}{
		"nothing":           {func(*parts) {}, nil},
		"log left out":      {func(p *parts) { p.att.Statements = p.att.Statements[:3] }, nil},
		"both left out":     {func(p *parts) { p.att.Statements = p.att.Statements[:2] }, nil},
		"quote left out":    {func(p *parts) { p.att.Statements = slices.Delete(p.att.Statements, 2, 3) }, attest.CheckStatements},
		"quote twice":       {func(p *parts) { p.att.Statements[3] = p.att.Statements[2] }, attest.CheckStatements},
		"a fifth":           {func(p *parts) { p.att.Statements = append(p.att.Statements, p.att.Statements[3]) }, attest.CheckStatements},
		"log first":         {func(p *parts) { st := p.att.Statements; st[2], st[3] = st[3], st[2] }, attest.CheckStatements},
		"quote as log":      {func(p *parts) { p.att.Statements[2].Type = oid.NodeAttestEventLog }, attest.CheckStatements},
		"empty log":         {func(p *parts) { p.att.Statements[3].Stmt = []byte{4, 0} }, refusal.Check("message-encoding")},
		"another challenge": {func(p *parts) { p.att.Statements[2] = earlier }, attest.CheckQualifyingData},
		"certify as quote": {edit(func(e *statement.QuoteEvidence) {
			e.Attest, e.Signature = takeApart(t, s.good).certify.Attest, takeApart(t, s.good).certify.Signature
		}), refusal.Check("attest-type")},
		"a value":      {edit(func(e *statement.QuoteEvidence) { e.PCRs[3].Value[0] ^= 1 }), refusal.Check("pcr-digest")},
		"a value less": {edit(func(e *statement.QuoteEvidence) { e.PCRs = e.PCRs[1:] }), refusal.Check("pcr-missing")},
		"a value more": {edit(func(e *statement.QuoteEvidence) {
			e.PCRs = append(e.PCRs, statement.PCR{Bank: tpm2.TPMAlgSHA256, Index: 8, Value: make([]byte, 32)})
		}), statement.CheckPCRNotQuoted},
		"a bit of signature": {edit(func(e *statement.QuoteEvidence) { e.Signature[len(e.Signature)-1] ^= 1 }), refusal.Check("tpm-signature")},
		"a bit of magic":     {edit(func(e *statement.QuoteEvidence) { e.Attest[0] ^= 1 }), statement.CheckMagic},
	} {
		t.Run(name, func(t *testing.T) {
			p := takeApart(t, s.good)
			c.change(p)
			r, err := s.plane.Verifier.Verify(ctx, p.together(t))
			if !errors.Is(err, c.want) || (r == nil) != (err != nil) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// No bit of the quote statement can be changed.
func TestEveryByteOfQuote(t *testing.T) {
	ctx := context.Background()
	s := newStage(t, attesttest.NodeOptions{Quote: tpmkind.DefaultPCRs(), AK: tpmkind.GCEECC(), TPMOptions: bothAKs()})
	for n := range takeApart(t, s.good).att.Statements[2].Stmt {
		p := takeApart(t, s.good)
		p.att.Statements[2].Stmt[n] ^= 1
		data, err := p.att.Marshal()
		if err != nil {
			continue // not even DER
		}
		p.bundle.Data = data
		request, err := p.bundle.Marshal()
		testkit.NoError(t, err)
		p.request.Spec.Request = request
		if _, err := s.plane.Verifier.Verify(ctx, p.request); err == nil {
			t.Errorf("byte %d", n)
		}
	}
}

func bothAKs() tpmsim.Options {
	return tpmsim.Options{AKs: []tpmsim.AK{{}, {Algorithm: tpmsim.P256}}}
}

func TestProverOptionsOfQuotes(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	sha1, err := statement.NewPCRSelection(tpm2.TPMAlgSHA1, 0)
	testkit.NoError(t, err)
	for name, o := range map[string]tpmkind.ProverOptions{
		"log without quote": {EventLog: logOfTest},
		"empty selection":   {Quote: []statement.PCRSelection{}},
		"empty bank":        {Quote: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0}}}},
		"SHA-1":             {Quote: []statement.PCRSelection{sha1}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tpmkind.NewProver(device, tpmkind.GCERSA(), o); err == nil {
				t.Errorf("%s: accepted", name)
			}
		})
	}
	broken := errors.New("broken")
	size := func(n int) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return make([]byte, n), nil }
	}
	for name, c := range map[string]struct {
		read func(context.Context) ([]byte, error)
		want error
		says string
	}{
		"unreadable":  {func(context.Context) ([]byte, error) { return nil, broken }, broken, "event log: broken"},
		"empty":       {size(0), refusal.CheckConfig, "got EventLog that is empty"},
		"a zero byte": {size(1), refusal.CheckConfig, "got EventLog of 1 bytes that are all zero"},
		"all zeros":   {size(statement.MaxEventLogSize), refusal.CheckConfig, "got EventLog of 131072 bytes that are all zero"},
		"too long":    {size(statement.MaxEventLogSize + 1), refusal.CheckConfig, "got EventLog of 131073 bytes, want at most 131072 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Quote: tpmkind.DefaultPCRs(), EventLog: c.read})
			plane := attesttest.NewControlPlane(t, node)
			if _, err := plane.Evidence(context.Background(), node); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %v with %q", name, err, c.want, c.says)
			}
		})
	}
	noHandles(t, device)
}
