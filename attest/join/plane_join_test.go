package join_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// world is a plane that knows machine m1 of a platform as node-1, and that machine.
type world struct {
	config   join.Config
	platform *attesttest.Platform
	plane    *join.Plane
	node     join.Node
	now      time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{platform: attesttest.NewPlatform(t), now: time.Now().Truncate(time.Second)}
	w.platform.Now = func() time.Time { return w.now }
	caCert, caKey := clusterCA()
	kind, err := w.platform.Kind()
	if err != nil {
		t.Fatal(err)
	}
	list := must(membership.NewStaticList([]membership.Member{
		{NodeName: "node-1", Machine: "platform:m1", Provider: attesttest.PlatformProvider},
		{NodeName: "node-2", Machine: "platform:m2", Provider: attesttest.PlatformProvider}}))
	w.config = join.Config{Chain: []*x509.Certificate{caCert}, Key: caKey, Kinds: []attest.Kind{kind}, Members: list, Now: func() time.Time { return w.now }}
	w.plane = must(join.NewPlane(w.config))
	w.node = join.Node{Name: "node-1", ClusterID: must(attest.ClusterID(caCert)), Key: newKey(),
		Prover: must(document.NewProver(attesttest.PlatformProvider, 1, w.platform.Machine("m1")))}
	return w
}

// ask returns the plane's reply to a request, and the object that a server stores.
func (w *world) ask(t *testing.T, request *csr.Request) (*join.Reply, *csr.Request) {
	t.Helper()
	reply := w.plane.Handle(t.Context(), request)
	stored := *request
	stored.Status = reply.Status(request)
	return reply, &stored
}

func TestJoin(t *testing.T) {
	w := newWorld(t)
	var replies []*join.Reply
	text, err := w.node.Join(t.Context(), func(_ context.Context, spec *csr.Spec) (*csr.Request, error) {
		reply, stored := w.ask(t, csr.Filed(spec, bootstrapper, w.now))
		replies = append(replies, reply)
		return stored, nil
	})
	if err != nil || len(replies) != 2 {
		t.Fatalf("got %v after %d messages", err, len(replies))
	}
	block, _ := pem.Decode(text)
	certificate := must(x509.ParseCertificate(block.Bytes))
	if got := certificate.Subject.String(); got != "CN=system:node:node-1,O=system:nodes" {
		t.Errorf("got %s", got)
	}
	if d := certificate.NotAfter.Sub(w.now); d != 24*time.Hour {
		t.Errorf("it lasts %s", d)
	}
	hello, answer := replies[0], replies[1]
	if hello.Decision.Verdict != csr.VerdictDeny || hello.Err != nil || hello.Issued != nil || hello.Result != nil {
		t.Errorf("hello: %+v", hello)
	}
	if answer.Decision.Verdict != csr.VerdictApprove || answer.Err != nil || answer.Issued.Record.Machine != "platform:m1" || answer.Result.Machine != "platform:m1" {
		t.Errorf("answer: %+v", answer)
	}
}

// Everything that an answer is bound to is changed in turn, after the node has made it.
func TestRefused(t *testing.T) {
	other := bootstrapper
	other.Username = csr.BootstrapUserPrefix + "zyxwvu"
	for name, row := range map[string]struct {
		change func(w *world, r *csr.Request) // nil changes nothing
		want   refusal.Check
	}{
		"another requester": {func(_ *world, r *csr.Request) { r.User = other }, attest.CheckBindingRequester},
		"too late": {func(w *world, r *csr.Request) {
			w.now = w.now.Add(11 * time.Minute)
			r.Metadata.CreationTimestamp = w.now
		}, attest.CheckAnswerLate},
		"no group":       {func(_ *world, r *csr.Request) { r.User.Groups = nil }, "request-groups"},
		"another signer": {func(_ *world, r *csr.Request) { r.Spec.SignerName = csr.SignerClientTPM }, refusal.Check("hello-signer")},
		"denied by an administrator": {func(_ *world, r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionDenied, Status: "True"}}
		}, csr.CheckRequestClosed},
		"a byte of it changed": {func(_ *world, r *csr.Request) { r.Spec.Request[len(r.Spec.Request)-50] ^= 1 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var last *join.Reply
			messages := 0
			text, err := w.node.Join(t.Context(), func(_ context.Context, spec *csr.Spec) (stored *csr.Request, _ error) {
				r := csr.Filed(spec, bootstrapper, w.now)
				if messages++; messages == 2 {
					row.change(w, r)
				}
				last, stored = w.ask(t, r)
				return stored, nil
			})
			if text != nil || err == nil {
				t.Fatalf("got %q, %v", text, err)
			}
			if last.Err == nil || row.want != "" && !errors.Is(last.Err, row.want) || last.Issued != nil || last.Result != nil || last.Decision.Verdict == csr.VerdictApprove {
				t.Errorf("got %+v, want %s", last, row.want)
			}
		})
	}
}

func TestNotMembers(t *testing.T) {
	for name, row := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"the machine of another node": {func(w *world) { w.node.Name = "node-2" }, "not-a-member"},
		"a node that is not listed":   {func(w *world) { w.node.Name = "node-3" }, "machine-unknown"},
		"a machine that is not listed": {func(w *world) {
			w.node.Prover = must(document.NewProver(attesttest.PlatformProvider, 1, w.platform.Machine("m3")))
		}, "not-a-member"},
		"another cluster":               {func(w *world) { w.node.ClusterID = "another" }, "binding-cluster"},
		"a provider ID without a grant": {func(w *world) { w.node.ProviderID = "metal://rack-1/7" }, "provider-id"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			row.change(w)
			text, err := w.node.Join(t.Context(), join.InMemory(w.plane, bootstrapper))
			if text != nil || err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %q, %v, want %s", text, err, row.want)
			}
		})
	}
}

// A hello that has expired is filed again, and no other refusal is.
func TestExpiredHello(t *testing.T) {
	for name, row := range map[string]struct {
		late  int // so many hellos
		works bool
		filed int
	}{
		"none": {0, true, 2}, "one": {1, true, 3}, "two": {2, true, 4}, "each": {9, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			filed := 0
			_, err := w.node.Join(t.Context(), func(_ context.Context, spec *csr.Spec) (*csr.Request, error) {
				at := w.now
				if filed++; filed <= row.late {
					at = at.Add(-6 * time.Minute)
				}
				_, stored := w.ask(t, csr.Filed(spec, bootstrapper, at))
				return stored, nil
			})
			if (err == nil) != row.works || filed != row.filed {
				t.Errorf("got %v after %d requests, want %d", err, filed, row.filed)
			}
			if !row.works && !strings.Contains(err.Error(), "HelloExpired") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A refused hello is filed once, and a File's error is returned unchanged.
func TestFiledOnce(t *testing.T) {
	down := errors.New("no API server")
	for name, row := range map[string]struct {
		node   string
		broken int // the request that cannot be filed
		filed  int
		want   error
	}{
		"refused": {"node-3", 0, 1, refusal.Check("no-challenge")}, "no hello": {"node-1", 1, 1, down}, "no answer": {"node-1", 2, 2, down},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node.Name = row.node
			filed := 0
			_, err := w.node.Join(t.Context(), func(_ context.Context, spec *csr.Spec) (*csr.Request, error) {
				if filed++; filed == row.broken {
					return nil, down
				}
				_, stored := w.ask(t, csr.Filed(spec, bootstrapper, w.now))
				return stored, nil
			})
			if !errors.Is(err, row.want) || filed != row.filed {
				t.Errorf("got %v after %d requests, want %v after %d", err, filed, row.want, row.filed)
			}
		})
	}
}

// The node holds the certificate to its own key and name.
func TestCertificateReceived(t *testing.T) {
	caCert, caKey := clusterCA()
	encode := func(key crypto.PublicKey, change func(*x509.Certificate)) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "system:node:node-1", Organization: []string{"system:nodes"}},
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true}
		change(template)
		der := must(x509.CreateCertificate(nil, template, caCert, key, caKey))
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	for name, row := range map[string]struct {
		certificate func(key *ecdsa.PrivateKey) []byte
		works       bool
	}{
		"good":        {func(k *ecdsa.PrivateKey) []byte { return encode(k.Public(), func(*x509.Certificate) {}) }, true},
		"another key": {func(*ecdsa.PrivateKey) []byte { return encode(newKey().Public(), func(*x509.Certificate) {}) }, false},
		"another name": {func(k *ecdsa.PrivateKey) []byte {
			return encode(k.Public(), func(c *x509.Certificate) { c.Subject.CommonName = "system:node:node-2" })
		}, false},
		"another group": {func(k *ecdsa.PrivateKey) []byte {
			return encode(k.Public(), func(c *x509.Certificate) { c.Subject.Organization[0] = "system:masters" })
		}, false},
		"another use": {func(k *ecdsa.PrivateKey) []byte {
			return encode(k.Public(), func(c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth })
		}, false},
		"a CA": {func(k *ecdsa.PrivateKey) []byte {
			return encode(k.Public(), func(c *x509.Certificate) { c.IsCA = true })
		}, false},
		"no PEM": {func(*ecdsa.PrivateKey) []byte { return []byte("x") }, false},
		"no certificate": {func(*ecdsa.PrivateKey) []byte {
			return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
		}, false},
		"another block": {func(k *ecdsa.PrivateKey) []byte {
			block, _ := pem.Decode(encode(k.Public(), func(*x509.Certificate) {}))
			block.Type = "X509 CERTIFICATE"
			return pem.EncodeToMemory(block)
		}, false},
		"nothing": {func(*ecdsa.PrivateKey) []byte { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			want := row.certificate(w.node.Key.(*ecdsa.PrivateKey))
			got, err := w.node.Join(t.Context(), func(_ context.Context, spec *csr.Spec) (*csr.Request, error) {
				_, stored := w.ask(t, csr.Filed(spec, bootstrapper, w.now))
				if stored.Status.Certificate != nil {
					stored.Status.Certificate = want
				}
				return stored, nil
			})
			if (err == nil) != row.works || (got != nil) != row.works {
				t.Errorf("got %q, %v", got, err)
			}
			if !row.works && !errors.Is(err, refusal.Check("certificate-received")) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Nothing that decides may be left out.
func TestConfig(t *testing.T) {
	for name, row := range map[string]struct {
		change func(c *join.Config)
		want   string // in the error; "" for none
	}{
		"whole":                   {func(*join.Config) {}, ""},
		"no chain":                {func(c *join.Config) { c.Chain = nil }, "Chain"},
		"a nil certificate":       {func(c *join.Config) { c.Chain = []*x509.Certificate{nil} }, "Chain"},
		"no key":                  {func(c *join.Config) { c.Key = nil }, "key"},
		"another key":             {func(c *join.Config) { c.Key = newKey() }, "key"},
		"no kinds":                {func(c *join.Config) { c.Kinds = nil }, "Kinds"},
		"a nil kind":              {func(c *join.Config) { c.Kinds = append(c.Kinds, nil) }, "Kinds"},
		"a kind twice":            {func(c *join.Config) { c.Kinds = append(c.Kinds, c.Kinds[0]) }, "Kinds"},
		"no members":              {func(c *join.Config) { c.Members = nil }, "Members"},
		"a zero list":             {func(c *join.Config) { c.Members = &membership.StaticList{} }, "StaticList"},
		"a list of another kind":  {func(c *join.Config) { c.Members = must(membership.ParseStaticList([]byte("gce:p/1 node-1\n"))) }, "gce:p/1"},
		"a lifetime without unit": {func(c *join.Config) { c.MaxLifetime = 24 }, "MaxLifetime"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWorld(t).config
			row.change(&c)
			p, err := join.NewPlane(c)
			if (err == nil) != (row.want == "") || (p == nil) != (err != nil) {
				t.Fatalf("got %v, %v", p, err)
			}
			if err != nil && (!errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}

// A missing plane, request or file is an error and not a panic.
func TestNothing(t *testing.T) {
	w := newWorld(t)
	var none *join.Plane
	for name, r := range map[string]*join.Reply{"no plane": none.Handle(t.Context(), &csr.Request{}), "a zero plane": new(join.Plane).Handle(t.Context(), &csr.Request{}),
		"no request": w.plane.Handle(t.Context(), nil), "a zero request": w.plane.Handle(t.Context(), &csr.Request{})} {
		if r.Err == nil || r.Issued != nil || r.Decision.Verdict == csr.VerdictApprove {
			t.Errorf("%s: got %+v", name, r)
		}
	}
	for name, file := range map[string]join.File{"no file": nil, "no plane": join.InMemory(nil, bootstrapper), "a zero plane": join.InMemory(new(join.Plane), bootstrapper), "nothing filed": func(context.Context, *csr.Spec) (*csr.Request, error) { return nil, nil }} {
		if text, err := w.node.Join(t.Context(), file); text != nil || err == nil {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
	}
	if text, err := new(join.Node).Join(t.Context(), join.InMemory(w.plane, bootstrapper)); text != nil || err == nil {
		t.Errorf("a zero node: got %q, %v", text, err)
	}
}

// Two planes share a key ring and have different lists: one verifies the answer to the other's
// challenge, but only for its own members.
func TestAnotherListWithTheSameRing(t *testing.T) {
	w := newWorld(t)
	w.config.KeyRing = must(attest.NewStaticKeyRing(attest.NewRingKey(w.now.Add(-time.Hour))))
	w.plane = must(join.NewPlane(w.config))
	c := w.config
	c.Members = must(membership.NewStaticList([]membership.Member{{NodeName: "node-2", Machine: "platform:m2", Provider: attesttest.PlatformProvider}}))
	other := must(join.NewPlane(c))
	messages := 0
	_, err := w.node.Join(t.Context(), func(_ context.Context, spec *csr.Spec) (*csr.Request, error) {
		r := csr.Filed(spec, bootstrapper, w.now)
		if messages++; messages == 2 {
			if reply := other.Handle(t.Context(), r); !errors.Is(reply.Err, csr.ErrNoMachine) {
				t.Errorf("the other list: %v", reply.Err)
			}
		}
		_, stored := w.ask(t, r)
		return stored, nil
	})
	if err != nil {
		t.Error(err)
	}
}
