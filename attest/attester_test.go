package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func hashOf(b []byte) [message.HashSize]byte { return sha256.Sum256(b) }

func TestClusterIDOfNoCA(t *testing.T) {
	for name, ca := range map[string]*x509.Certificate{"none": nil, "without a key": {}} {
		t.Run(name, func(t *testing.T) {
			if id, err := ClusterID(ca); err == nil || id != "" {
				t.Errorf("%q, %v", id, err)
			}
		})
	}
	key := newFakeKey(t)
	want := testkit.Must(csr.SPKIHash(key.Public()))
	if id, err := ClusterID(&x509.Certificate{PublicKey: key.Public()}); err != nil || len(id) != 64 || strings.ToLower(id) != id {
		t.Errorf("of a CA: %q, %v", id, err)
	} else if !strings.HasPrefix(id, hexOf(want[:4])) {
		t.Errorf("%s is not over the CA's key", id)
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var out []byte
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}

func TestNewAttester(t *testing.T) {
	named := func(name string) *fakeProver { return &fakeProver{provider: name} }
	for name, c := range map[string]struct {
		prover Prover
		good   bool
	}{
		"a prover":           {newFakeProver(), true},
		"none":               {nil, false},
		"one without a name": {named(""), false},
		"a name with a dot":  {named("a.b"), false},
		"a name in capitals": {named("TPM"), false},
		"insecure":           {named("insecure"), false},
		"the longest name":   {named(strings.Repeat("a", 63)), true},
		"a longer one":       {named(strings.Repeat("a", 64)), false},
		"version 2":          {&fakeProver{provider: "fake", version: 2}, true},
		"version 0":          {&fakeProver{provider: "fake", version: -1}, false},
		"the newest version": {&fakeProver{provider: "fake", version: 999999999}, true},
		"a newer one":        {&fakeProver{provider: "fake", version: 1000000000}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := NewAttester(c.prover)
			if c.good != (err == nil) || c.good != (a != nil) || !c.good && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, %v", a, err)
			}
		})
	}
}

// A subject that the node cannot mean is refused before the prover is asked for anything.
func TestInputsOfMessages(t *testing.T) {
	n := newFakeNode(t, newFakeProver())
	good := n.subject
	challenge := testkit.Must(n.challenge(t).Marshal())
	n.hello(t)
	n.answer(t, challenge)
	for name, c := range map[string]struct {
		change func(*Subject)
		good   bool
	}{
		"no cluster":             {func(s *Subject) { s.ClusterID = "" }, false},
		"the longest cluster":    {func(s *Subject) { s.ClusterID = strings.Repeat("c", der.MaxClusterIDSize) }, true},
		"a longer cluster":       {func(s *Subject) { s.ClusterID = strings.Repeat("c", der.MaxClusterIDSize+1) }, false},
		"a cluster not in UTF-8": {func(s *Subject) { s.ClusterID = "\xff" }, false},
		"no signer":              {func(s *Subject) { s.SignerName = "" }, false},
		"a longer signer":        {func(s *Subject) { s.SignerName = strings.Repeat("s", der.MaxSignerNameSize+1) }, false},
		"no lifetime":            {func(s *Subject) { s.ExpirationSeconds = 0 }, true},
		"a lifetime of -1":       {func(s *Subject) { s.ExpirationSeconds = -1 }, false},
		"no request":             {func(s *Subject) { s.Request = nil }, false},
		"nothing":                {func(s *Subject) { *s = Subject{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			subject := good
			c.change(&subject)
			n.prover.asked = nil
			if _, err := n.attester.Hello(t.Context(), subject); c.good != (err == nil) {
				t.Errorf("hello: %v", err)
			}
			if _, err := n.attester.Answer(t.Context(), challenge, n.key, subject); err == nil {
				t.Error("another subject's challenge was answered")
			}
			if !c.good && len(n.prover.asked) != 0 || slices.Contains(n.prover.asked, "Answer") {
				t.Errorf("the prover was asked for %q", n.prover.asked)
			}
		})
	}
	t.Run("an unknown signer", func(t *testing.T) {
		subject := good
		subject.SignerName = "example.com/signer"
		if _, err := n.attester.Hello(t.Context(), subject); !errors.Is(err, csr.CheckSignerName) {
			t.Errorf("got %v", err)
		}
	})
}

// Only the request's key is certified, and only a challenge for this node is answered.
func TestInputsOfAnswers(t *testing.T) {
	n := newFakeNode(t, newFakeProver())
	changed := func(change func(*message.Challenge)) []byte {
		c := n.challenge(t)
		change(c)
		data := testkit.Must(c.Marshal())
		return data
	}
	bound := func(change func(*message.Binding)) []byte {
		return changed(func(c *message.Challenge) { change(&c.Binding) })
	}
	good := bound(func(*message.Binding) {})
	rsaKey := testkit.Must(rsa.GenerateKey(rand.Reader, 2048))
	for name, c := range map[string]struct {
		challenge []byte
		key       crypto.Signer
		want      Check // "" for an error of no check
	}{
		"another key":            {good, newFakeKey(t), message.CheckKeyMismatch},
		"a key of another kind":  {good, rsaKey, message.CheckKeyMismatch},
		"no challenge":           {nil, n.key, der.CheckEncoding},
		"a cut challenge":        {good[:len(good)-1], n.key, der.CheckEncoding},
		"a challenge and a byte": {append(bytes.Clone(good), 0), n.key, der.CheckEncoding},
		"a challenge of road EK": {changed(func(c *message.Challenge) {
			c.Binding.Road, c.Binding.AKName, c.Clear = message.RoadEK, []byte{0, 0x0b, 1}, nil
			c.Credential = &message.Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}
		}), n.key, CheckBindingRoad},
		"a challenge of road AK":    {bound(func(b *message.Binding) { b.Road = message.RoadAK }), n.key, CheckBindingRoad},
		"another cluster":           {bound(func(b *message.Binding) { b.ClusterID = "cluster-2" }), n.key, CheckBindingCluster},
		"another signer":            {bound(func(b *message.Binding) { b.SignerName = csr.SignerClientTPM }), n.key, CheckBindingSigner},
		"another lifetime":          {bound(func(b *message.Binding) { b.ExpirationSeconds++ }), n.key, CheckBindingExpiration},
		"another machine":           {bound(func(b *message.Binding) { b.MachineKey[31] ^= 1 }), n.key, CheckBindingMachineKey},
		"another request":           {bound(func(b *message.Binding) { b.RequestHash[31] ^= 1 }), n.key, CheckBindingRequest},
		"a window of more than 1 h": {bound(func(b *message.Binding) { b.NotAfter = b.IssuedAt + 3601 }), n.key, checkBindingWindow},
		"a window that ends before": {bound(func(b *message.Binding) { b.NotAfter = b.IssuedAt - 1 }), n.key, checkBindingWindow},
	} {
		t.Run(name, func(t *testing.T) {
			n.prover.asked = nil
			spec, err := n.attester.Answer(t.Context(), c.challenge, c.key, n.subject)
			if err == nil || spec != nil {
				t.Errorf("accepted: %v", spec)
			}
			if c.want != "" {
				expectRefusal(t, err, c.want)
			}
			if slices.Contains(n.prover.asked, "Answer") || slices.Contains(n.prover.asked, "Open") {
				t.Errorf("the prover was asked for %q", n.prover.asked)
			}
		})
	}
	t.Run("what only the verifier knows", func(t *testing.T) {
		n.answer(t, bound(func(b *message.Binding) { b.Requester = "another user" }))
	})
}

// On road EK the AK's name is held against the node's own too.
func TestAnswersForAnotherAK(t *testing.T) {
	p := newFakeProver()
	p.road = RoadEK
	n := newFakeNode(t, p)
	c := n.challenge(t)
	c.Binding.AKName = append(bytes.Clone(c.Binding.AKName[:33]), 1)
	data := testkit.Must(c.Marshal())
	_, err := n.attester.Answer(t.Context(), data, n.key, n.subject)
	expectRefusal(t, err, checkBindingAKName)
	if slices.Contains(p.asked, "Open") {
		t.Error("the credential was opened")
	}
}

// A credential must contain a whole secret, or no answer is made.
func TestSizesOfSecrets(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		size int
		err  error
		good bool
	}{
		"none":       {0, nil, false},
		"one byte":   {1, nil, false},
		"31":         {message.SecretSize - 1, nil, false},
		"32":         {message.SecretSize, nil, true},
		"33":         {message.SecretSize + 1, nil, false},
		"not opened": {message.SecretSize, broken, false},
		"64":         {2 * message.SecretSize, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeProver()
			p.road = RoadEK
			secret := bytes.Repeat([]byte{9}, c.size)
			p.open = func(got *Credential) ([]byte, error) {
				if len(got.IDObject) != message.SecretSize || len(got.EncryptedSecret) != 1 {
					t.Errorf("the credential is %v", got)
				}
				return secret, c.err
			}
			n := newFakeNode(t, p)
			challenge := testkit.Must(n.challenge(t).Marshal())
			_, err := n.attester.Answer(t.Context(), challenge, n.key, n.subject)
			if c.good != (err == nil) || c.good != slices.Contains(p.asked, "Answer") || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%v, asked for %q", err, p.asked)
			}
			if c.good && !bytes.Equal(p.challenged.QualifyingData("document"), message.QualifyingData(secret, "fake/v1", "document", p.challenged.Binding())) {
				t.Error("the qualifying data is not of this secret")
			}
		})
	}
}

// A secret in clear is not taken to the prover to be opened, and the key and the
// challenge reach it as they are.
func TestWhatTheProverIsGiven(t *testing.T) {
	n := newFakeNode(t, newFakeProver())
	c := n.challenge(t)
	data := testkit.Must(c.Marshal())
	n.prover.asked = nil
	n.answer(t, data)
	if want := []string{"Use answer", "Present", "Answer", "used"}; !slices.Equal(n.prover.asked, want) {
		t.Errorf("asked for %q, want %q", n.prover.asked, want)
	}
	binding := testkit.Must(c.Binding.Marshal())
	if n.prover.key != crypto.Signer(n.key) || !bytes.Equal(n.prover.challenged.Binding(), binding) {
		t.Error("another key or binding")
	}
	if (&Challenged{}).QualifyingData("document") != nil {
		t.Error("a Challenged that no Attester made has qualifying data")
	}
	n.prover.asked = nil
	n.hello(t)
	if want := []string{"Use hello", "Present", "Hello", "used"}; !slices.Equal(n.prover.asked, want) {
		t.Errorf("asked for %q, want %q", n.prover.asked, want)
	}
}

// A prover's error, or malformed evidence, is an error of the message.
func TestFailingProvers(t *testing.T) {
	statement := Statement{DER: []byte{5, 0}}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		change func(*fakeProver)
		want   error
	}{
		"nothing is presented": {func(p *fakeProver) { p.presents = broken }, broken},
		"no evidence":          {func(p *fakeProver) { p.evidence = func(Stage, *Evidence) *Evidence { return nil } }, nil},
		"no statement":         {func(p *fakeProver) { p.evidence = func(Stage, *Evidence) *Evidence { return &Evidence{} } }, der.CheckEncoding},
		"one without a type": {func(p *fakeProver) {
			p.evidence = func(Stage, *Evidence) *Evidence { return &Evidence{Statements: []Statement{statement}} }
		}, der.CheckEncoding},
		"not a certificate": {func(p *fakeProver) {
			p.evidence = func(_ Stage, e *Evidence) *Evidence { e.Certificates = [][]byte{{1}}; return e }
		}, der.CheckEncoding},
		"evidence over its limit": {func(p *fakeProver) {
			p.evidence = func(_ Stage, e *Evidence) *Evidence {
				e.Statements[0].DER = append([]byte{4, 0x83, 4, 0, 0}, make([]byte, der.MaxEvidenceSize)...)
				return e
			}
		}, der.CheckSize},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFakeNode(t, newFakeProver())
			challenge := testkit.Must(n.challenge(t).Marshal())
			c.change(n.prover)
			spec, err := n.attester.Hello(t.Context(), n.subject)
			if err == nil || spec != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("hello: %v, %v", spec, err)
			}
			spec, err = n.attester.Answer(t.Context(), challenge, n.key, n.subject)
			if err == nil || spec != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("answer: %v, %v", spec, err)
			}
		})
	}
}

func TestCloseOfAProver(t *testing.T) {
	n := newFakeNode(t, newFakeProver())
	if err := n.attester.Close(); err != nil {
		t.Error(err)
	}
	n.prover.closes = context.DeadlineExceeded
	if err := n.attester.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// The messages are filed as Kubernetes wants them: the hello under the signer of
// challenges, both with the certificate's usages and lifetime.
func TestSpecsOfMessages(t *testing.T) {
	n := newFakeNode(t, newFakeProver())
	challenge := testkit.Must(n.challenge(t).Marshal())
	signer := testkit.Must(csr.SignerChallenge("fake"))
	for want, r := range map[string]*csr.Request{signer: n.hello(t), n.subject.SignerName: n.answer(t, challenge)} {
		if r.Spec.SignerName != want || r.Spec.ExpirationSeconds == nil || *r.Spec.ExpirationSeconds != 3600 ||
			!slices.Equal(r.Spec.Usages, csr.PurposeClient.Usages(false)) {
			t.Errorf("%+v", r.Spec)
		}
		bundle := testkit.Must(csr.Parse(r.Spec.Request))
		if bundle.Provider != "fake/v1" || !bytes.Equal(bundle.Request, n.subject.Request) {
			t.Errorf("provider %q", bundle.Provider)
		}
	}
	n.subject.ExpirationSeconds = 0
	if r := n.hello(t); r.Spec.ExpirationSeconds != nil {
		t.Errorf("a lifetime of %d", *r.Spec.ExpirationSeconds)
	}
}
