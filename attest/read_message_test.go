package attest_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// filed is a message of the worked example as an API server keeps it, after changes to spec
// and metadata.
func (e *workedExample) filed(t testing.TB, text []byte, signer string, created time.Time, change func(spec, metadata map[string]any)) *csr.Request {
	t.Helper()
	spec := map[string]any{"request": text, "signerName": signer, "username": e.Requester, "groups": e.Groups, "usages": e.Usages, "expirationSeconds": e.ExpirationSeconds}
	metadata := map[string]any{"name": "csr-1", "creationTimestamp": created}
	if change != nil {
		change(spec, metadata)
	}
	object := testkit.Must(json.Marshal(map[string]any{"spec": spec, "metadata": metadata}))
	r := testkit.Must(csr.ParseServerObject(object))
	return r
}

// A kind without roots reads the messages of the worked example, with or without their signer.
func TestReadMessage(t *testing.T) {
	e := loadWorkedExample(t)
	for _, c := range []struct {
		file, signer string
		created      time.Time
		stage        attest.Stage
	}{
		{"hello.pem", e.ChallengeSigner, e.HelloCreated, attest.StageHello},
		{"answer.pem", e.SignerName, e.AnswerCreated, attest.StageAnswer},
	} {
		for _, signer := range []string{c.signer, ""} {
			t.Run(c.file+" "+signer, func(t *testing.T) {
				m := testkit.Must(attest.ReadMessage(e.filed(t, e.file(t, c.file), signer, c.created, nil).Parsed(), new(tpm.Kind)))
				if m.Stage != c.stage || m.Provider != tpm.Provider || m.Evidence.Version != 1 || m.Road != attest.RoadAK || m.ClusterID != e.ClusterID ||
					m.TargetSigner != e.SignerName || m.Machine != "" || len(m.MachineKey) == 0 || len(m.Evidence.Certificates) != 2 {
					t.Errorf("got %+v", m)
				}
				if len(m.Differences) != 0 || (len(m.KeyID) != 0) != (c.stage == attest.StageAnswer) {
					t.Errorf("got the echo of key %x and the differences %v", m.KeyID, m.Differences)
				}
				if x := m; len(x.KeyID) != 0 && (hex.EncodeToString(x.KeyID) != hex.EncodeToString(e.RingKey.ID) || x.IssuedAt.Unix() != e.IssuedAt || x.NotAfter.Unix() != e.NotAfter ||
					x.Requester != e.Requester || x.ExpirationSeconds != e.ExpirationSeconds || !slices.Equal(x.MachineKeyHash[:], e.MachineKey) || !slices.Equal(x.RequestHash[:], e.RequestHash)) {
					t.Errorf("got the echo %+v", x)
				}
			})
		}
	}
}

// Each fact that an answer repeats is held against the request by the verifier's own rules.
func TestMessageDifferences(t *testing.T) {
	e := loadWorkedExample(t)
	bundle := testkit.Must(csr.Parse(e.file(t, "answer.pem")))
	data := testkit.Must(message.ParseBundle(bundle.Data))
	// changed is the answer with another binding.
	changed := func(change func(*message.Binding)) []byte {
		proof, binding, err := message.ParseProof(data.Statements[1].Stmt)
		if err != nil {
			t.Fatal(err)
		}
		change(binding)
		other, err1 := binding.Marshal()
		proof.Binding = other
		stmt, err2 := proof.Marshal()
		text, err3 := (&message.Bundle{Certificates: data.Certificates, Statements: []message.Statement{data.Statements[0], {Type: data.Statements[1].Type, Stmt: stmt}}}).Marshal()
		b := *bundle
		b.Data = text
		out, err4 := b.Marshal()
		testkit.NoError(t, errors.Join(err1, err2, err3, err4))
		return out
	}
	for name, row := range map[string]struct {
		binding func(*message.Binding)
		change  func(spec, metadata map[string]any)
		want    []attest.Check
	}{
		"as it is":           {},
		"another requester":  {change: func(spec, _ map[string]any) { spec["username"] = csr.BootstrapUserPrefix + "zzzzzz" }, want: []attest.Check{attest.CheckBindingRequester}},
		"another lifetime":   {change: func(spec, _ map[string]any) { spec["expirationSeconds"] = e.ExpirationSeconds + 1 }, want: []attest.Check{attest.CheckBindingExpiration}},
		"no lifetime":        {change: func(spec, _ map[string]any) { delete(spec, "expirationSeconds") }, want: []attest.Check{attest.CheckBindingExpiration}},
		"another signer":     {change: func(spec, _ map[string]any) { spec["signerName"] = csr.SignerServingTPM }, want: []attest.Check{attest.CheckBindingSigner}},
		"another machine":    {binding: func(b *message.Binding) { b.MachineKey[0] ^= 1 }, want: []attest.Check{attest.CheckBindingMachineKey}},
		"another request":    {binding: func(b *message.Binding) { b.RequestHash[0] ^= 1 }, want: []attest.Check{attest.CheckBindingRequest}},
		"another cluster":    {binding: func(b *message.Binding) { b.ClusterID = "other" }}, // which the verifier alone can tell
		"a stretched window": {binding: func(b *message.Binding) { b.NotAfter = b.IssuedAt + 3601 }, want: []attest.Check{attest.CheckBindingWindow}},
		"too early": {change: func(_, metadata map[string]any) { metadata["creationTimestamp"] = time.Unix(e.IssuedAt-61, 0).UTC() },
			want: []attest.Check{attest.CheckAnswerEarly}},
		"early enough": {change: func(_, metadata map[string]any) { metadata["creationTimestamp"] = time.Unix(e.IssuedAt-60, 0).UTC() }},
		"too late": {change: func(_, metadata map[string]any) { metadata["creationTimestamp"] = time.Unix(e.NotAfter+1, 0).UTC() },
			want: []attest.Check{attest.CheckAnswerLate}},
		"at the last moment": {change: func(_, metadata map[string]any) { metadata["creationTimestamp"] = time.Unix(e.NotAfter, 0).UTC() }},
		"not stored":         {change: func(_, metadata map[string]any) { delete(metadata, "creationTimestamp") }},
		"two at once": {change: func(spec, _ map[string]any) { spec["username"], spec["expirationSeconds"] = "eve", 600 },
			want: []attest.Check{attest.CheckBindingExpiration, attest.CheckBindingRequester}},
	} {
		t.Run(name, func(t *testing.T) {
			text := e.file(t, "answer.pem")
			if row.binding != nil {
				text = changed(row.binding)
			}
			m := testkit.Must(attest.ReadMessage(e.filed(t, text, e.SignerName, e.AnswerCreated, row.change).Parsed(), new(tpm.Kind)))
			var got []attest.Check
			for _, d := range m.Differences {
				got = append(got, d.Check)
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("got %v, want %v", m.Differences, row.want)
			}
		})
	}
}

// A malformed message is refused with the check of its fault, and the fields read before are returned.
func TestReadMessageRefuses(t *testing.T) {
	e := loadWorkedExample(t)
	hello, answer := e.file(t, "hello.pem"), e.file(t, "answer.pem")
	changed := func(change func(*csr.Bundle)) []byte {
		b := testkit.Must(csr.Parse(hello))
		change(b)
		text := testkit.Must(b.Marshal())
		return text
	}
	for name, row := range map[string]struct {
		text     []byte
		signer   string
		want     error
		provider string
		evidence bool
	}{
		"a hello where an answer is filed": {hello, e.SignerName, attest.CheckStatements, "tpm", true},
		"an answer where hellos are":       {answer, e.ChallengeSigner, attest.CheckStatements, "tpm", true},
		"a stranger's":                     {changed(func(b *csr.Bundle) { b.Provider = "acme/v7" }), e.ChallengeSigner, csr.CheckAttestationProvider, "acme", true},
		"another version":                  {changed(func(b *csr.Bundle) { b.Provider = "tpm/v2" }), e.ChallengeSigner, csr.CheckProviderVersion, "tpm", true},
		"no evidence":                      {changed(func(b *csr.Bundle) { b.Provider, b.Data = "", nil }), e.ChallengeSigner, attest.Check("bundle-provider"), "", false},
		"evidence that is cut off":         {changed(func(b *csr.Bundle) { b.Data = b.Data[:len(b.Data)-1] }), e.ChallengeSigner, attest.CheckEncoding, "tpm", false},
		"a request that is cut off":        {hello[:len(hello)-1], e.ChallengeSigner, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := attest.ReadMessage(e.filed(t, row.text, row.signer, e.HelloCreated, nil).Parsed(), new(tpm.Kind))
			if err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
			if m == nil || m.Stage != 0 || m.Provider != row.provider || (m.Evidence != nil) != row.evidence {
				t.Errorf("got %+v", m)
			}
		})
	}
	if m, err := attest.ReadMessage(nil); m == nil || err == nil {
		t.Errorf("of nothing: got %+v, %v", m, err)
	}
}

// FuzzReadMessage reads any request.
func FuzzReadMessage(f *testing.F) {
	testkit.BeginFuzz(f)
	kinds := []attest.Kind{new(tpm.Kind)}
	for _, name := range []string{"hello", "answer"} {
		text := testkit.Must(os.ReadFile("testdata/messages/" + name + ".pem"))
		f.Add(text, csr.SignerChallengeTPM)
		f.Add(text, csr.SignerClientTPM)
		f.Add(text[:len(text)*2/3], "")
	}
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n"), "")
	f.Fuzz(func(t *testing.T, text []byte, signer string) {
		m, err := attest.ReadMessage((&csr.Request{Spec: csr.Spec{Request: text, SignerName: signer}}).Parsed(), kinds...)
		if m == nil || err == nil && (m.Stage == 0 || m.Evidence == nil || len(m.MachineKey) == 0 || (len(m.KeyID) != 0) != (m.Stage == attest.StageAnswer)) {
			t.Errorf("got %+v, %v", m, err)
		}
	})
}

// Read a filed request, without roots of trust.
func ExampleReadMessage() {
	text, err := os.ReadFile("testdata/messages/answer.pem")
	if err != nil {
		fmt.Println(err)
		return
	}
	request := &csr.Request{Spec: csr.Spec{Request: text}}
	m, err := attest.ReadMessage(request.Parsed(), new(tpm.Kind))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Stage, m.Provider, m.Evidence.Version, m.Road, m.ClusterID)
	fmt.Println(m.Requester, m.IssuedAt)
	fmt.Println(m.Evidence.Types())
	// Output:
	// answer tpm 1 ak vectors
	// system:bootstrap:abc123 2026-03-02 11:59:00 +0000 UTC
	// tcg-attest-tpm-certify, nodeattest-proof
}

// tripwire is a context that overwrites the text of a request at the nth call of Err: code that reads
// the text from then on reads nothing.
type tripwire struct {
	context.Context
	request *csr.Request
	n       int
}

func (w *tripwire) Err() error {
	if w.n--; w.n == 0 {
		clear(w.request.Spec.Request)
	}
	return w.Context.Err()
}

// TestMessagesAreReadOnce: hello and answer are read exactly once, by verifier and
// provider. Every call asks its context once before the text is read, and
// again between any two later steps.
func TestMessagesAreReadOnce(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	plane := attesttest.NewControlPlane(t, node)
	hello := testkit.Must(node.Hello(t.Context(), plane.Now()))
	challenge := testkit.Must(plane.Verifier.Challenge(t.Context(), hello))
	answer := testkit.Must(node.Answer(t.Context(), challenge, plane.Now()))
	for name, c := range map[string]struct {
		request *csr.Request
		before  int // questions to the context before the text is read
		call    func(context.Context, *csr.Request) error
	}{
		"Verifier.Challenge": {hello, 1, func(ctx context.Context, r *csr.Request) error {
			_, err := plane.Verifier.Challenge(ctx, r)
			return err
		}},
		"Verifier.Verify": {answer, 1, func(ctx context.Context, r *csr.Request) error { _, err := plane.Verifier.Verify(ctx, r); return err }},
		"csr.Verify": {answer, 1, func(ctx context.Context, r *csr.Request) error {
			_, err := csr.Verify(ctx, plane.Verifier, r)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; n <= c.before+3; n++ {
				request := &csr.Request{Metadata: c.request.Metadata, Spec: c.request.Spec, User: c.request.User} // keeps nothing
				request.Spec.Request = bytes.Clone(c.request.Spec.Request)
				err := c.call(&tripwire{t.Context(), request, n}, request)
				if (err == nil) != (n > c.before) {
					t.Errorf("overwritten at question %d: got %v", n, err)
				}
			}
		})
	}
}
