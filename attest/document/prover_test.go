package document_test

import (
	"errors"

	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestNewProver(t *testing.T) {
	if p, err := document.NewProver("platform", 1, nil); !errors.Is(err, refusal.CheckConfig) || p != nil {
		t.Errorf("no source: got %v, %v", p, err)
	}
	p, err := document.NewProver("platform", 1, &source{})
	if err != nil || p.Provider() != "platform" || p.Version() != 1 || p.Close() != nil {
		t.Errorf("%v, %v", p, err)
	}
	for name, format := range map[string]int{"": 1, "platform": 0} {
		p = testkit.Must(document.NewProver(name, format, &source{}))
		if _, err := attest.NewAttester(p); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("name %q and version %d: %v", name, format, err)
		}
	}
}

// A source's error, or a wrong value of it, is an error of the message.
func TestFailingSources(t *testing.T) {
	size := func(n int) func([]byte) []byte { return func([]byte) []byte { return make([]byte, n) } }
	for name, c := range map[string]struct {
		change        func(*source)
		hello, answer error
	}{
		"no machine":       {func(s *source) { s.fails = "Machine" }, errSource, errSource},
		"an empty machine": {func(s *source) { s.identity = "" }, attest.CheckIdentity, attest.CheckIdentity},
		"a machine too long": {func(s *source) {
			s.identity = attest.Identity("platform:" + string(make([]byte, document.MaxMachineSize)))
		}, refusal.Check("message-encoding"), attest.CheckBindingMachineKey},
		"another machine":      {func(s *source) { s.identity = "platform:m2" }, nil, attest.CheckBindingMachineKey},
		"no document":          {func(s *source) { s.fails = "Document" }, nil, errSource},
		"an empty document":    {func(s *source) { s.document = size(0) }, nil, refusal.Check("message-encoding")},
		"the largest document": {func(s *source) { s.document = size(document.MaxDocumentSize) }, nil, nil},
		"a larger one":         {func(s *source) { s.document = size(document.MaxDocumentSize + 1) }, nil, refusal.Check("message-encoding")},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			challenge := testkit.Must(j.challenge(t, j.verifier(t)))
			c.change(j.source)
			_, err := j.attester(t).Hello(t.Context(), j.subject)
			if (err == nil) != (c.hello == nil) || c.hello != nil && !errors.Is(err, c.hello) {
				t.Errorf("hello: got %v, want %v", err, c.hello)
			}
			_, err = j.attester(t).Answer(t.Context(), challenge, j.key, j.subject)
			if (err == nil) != (c.answer == nil) || c.answer != nil && !errors.Is(err, c.answer) {
				t.Errorf("answer: got %v, want %v", err, c.answer)
			}
		})
	}
}

// A session that cannot encode a message returns its error and no evidence.
func TestEvidenceThatCannotBeWritten(t *testing.T) {
	j := newJoin(t)
	p := testkit.Must(document.NewProver(attesttest.PlatformProvider, 1, j.source))
	expectNothing := func(t *testing.T, e *attest.Evidence, err error) error {
		t.Helper()
		if e != nil || !errors.Is(err, refusal.Check("message-encoding")) {
			t.Errorf("got %v, %v", e, err)
		}
		return nil
	}
	use := func(t *testing.T, stage attest.Stage, f func(attest.Session) error) {
		t.Helper()
		if err := p.Use(t.Context(), stage, f); err != nil {
			t.Error(err)
		}
	}
	t.Run("hello", func(t *testing.T) {
		use(t, attest.StageHello, func(s attest.Session) error {
			e, err := s.Hello(t.Context(), attest.Head{})
			return expectNothing(t, e, err)
		})
	})
	t.Run("proof of no challenge", func(t *testing.T) {
		use(t, attest.StageAnswer, func(s attest.Session) error {
			e, err := s.Answer(t.Context(), j.key, new(attest.Challenged))
			return expectNothing(t, e, err)
		})
	})
	t.Run("document", func(t *testing.T) {
		challenge := testkit.Must(j.challenge(t, j.verifier(t)))
		j.source.document = func([]byte) []byte { return make([]byte, document.MaxDocumentSize+1) }
		asked := false
		a := testkit.Must(attest.NewAttester(&answering{p, func(s attest.Session, c *attest.Challenged) {
			asked = true
			e, err := s.Answer(t.Context(), j.key, c)
			_ = expectNothing(t, e, err)
		}}))
		if _, err := a.Answer(t.Context(), challenge, j.key, j.subject); !errors.Is(err, refusal.Check("message-encoding")) || !asked {
			t.Errorf("%v, asked %t", err, asked)
		}
	})
}

// A session of documents opens no credential.
func TestNoCredentials(t *testing.T) {
	p := testkit.Must(document.NewProver("platform", 1, newJoin(t).source))
	err := p.Use(t.Context(), attest.StageAnswer, func(s attest.Session) error {
		secret, err := s.Open(t.Context(), &attest.Credential{IDObject: []byte{1}, EncryptedSecret: []byte{1}})
		if secret != nil {
			t.Error("opened")
		}
		return err
	})
	if !errors.Is(err, attest.CheckBindingRoad) {
		t.Errorf("got %v", err)
	}
}
