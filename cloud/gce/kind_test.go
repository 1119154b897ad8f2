package gce_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// machines are the metadata servers of the machines of a conformance run, whose cloud's
// clock can be set.
type machines struct {
	servers map[string]*cloudtest.Server

	mu sync.Mutex
	at time.Time
}

func (m *machines) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func serveMachines(t testing.TB) (*cloudtest.GCE, *machines) {
	t.Helper()
	m := &machines{servers: map[string]*cloudtest.Server{}}
	cloud := cloudtest.NewGCE(t)
	cloud.Now = m.now
	for n, name := range []string{attesttest.MachineOne, attesttest.MachineTwo, attesttest.Stranger} {
		m.servers[name] = cloud.Serve(instance(uint64(n + 1)))
		t.Cleanup(m.servers[name].Close)
	}
	return cloud, m
}

// source is a machine at a time, for attesttest.Documents.
func (m *machines) source(t testing.TB) func(string, time.Time) document.Source {
	return func(machine string, at time.Time) document.Source {
		m.mu.Lock()
		m.at = at
		m.mu.Unlock()
		return testkit.Must(gce.NewSource(gce.SourceOptions{URL: m.servers[machine].URL}))
	}
}

// documents are the kind of a cloud, perhaps weakened, for the conformance runner.
func documents(t testing.TB, weaken func(attest.Kind, *cloudtest.GCE) attest.Kind) *attesttest.Documents {
	t.Helper()
	cloud, own := serveMachines(t)
	_, foreign := serveMachines(t)
	kind := testkit.Must(gce.NewKind(trust(t, cloud)))
	return &attesttest.Documents{Kind: weaken(kind, cloud), Source: own.source(t), Attacker: foreign.source(t)}
}

func strict(k attest.Kind, _ *cloudtest.GCE) attest.Kind { return k }

func provider(t testing.TB, c attest.VerifierConfig) csr.Provider {
	t.Helper()
	return testkit.Must(attest.NewVerifier(c))
}

func TestConformance(t *testing.T) {
	w := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: documents(t, strict)})
	attesttest.Run(t, provider(t, w.Config), w)
}

// TestWeakKinds: the runner names the attacks that pass a kind without one check.
func TestWeakKinds(t *testing.T) {
	for name, c := range map[string]struct {
		weaken func(attest.Kind, *cloudtest.GCE) attest.Kind
		want   []string
	}{
		"any key": {func(_ attest.Kind, cloud *cloudtest.GCE) attest.Kind {
			return weakKind(t, func(_ context.Context, token []byte, now time.Time) (*gce.Details, error) {
				return verifyNaively(string(token), cloud.Keys(), now, jws.Check("jws-signature"), jws.CheckKeyID)
			})
		}, []string{"document-forged", "document-value-replaced", "document-bytes-not-covered", "document-identity-replaced", "document-prefix",
			"document-in-another-encoding", "document-field-empty", "document-field-missing", "document-field-prefix", "document-field-of-one-repeated-byte",
			"document-field-of-another-machine"}},
		"no clock": {func(_ attest.Kind, cloud *cloudtest.GCE) attest.Kind {
			return weakKind(t, func(_ context.Context, token []byte, now time.Time) (*gce.Details, error) {
				return verifyNaively(string(token), cloud.Keys(), now, refusal.Check("gce-expired"), refusal.Check("gce-future"))
			})
		}, []string{"document-of-yesterday", "document-of-tomorrow"}},
		"nothing forgotten": {func(_ attest.Kind, cloud *cloudtest.GCE) attest.Kind {
			return weakKind(t, func(_ context.Context, token []byte, now time.Time) (*gce.Details, error) {
				return verifyNaively(string(token), cloud.Keys(), now)
			})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: documents(t, c.weaken)})
			got := attesttest.GotIn(attesttest.Try(t.Context(), provider(t, w.Config), w))
			if !slices.Equal(got, c.want) {
				t.Errorf("got in: %q, want %q", got, c.want)
			}
		})
	}
}

// weakPlatform verifies tokens in its own way.
type weakPlatform func(ctx context.Context, token []byte, now time.Time) (*gce.Details, error)

func (p weakPlatform) Read(token []byte) (*document.Claims, error) {
	d, err := readNaively(string(token))
	if err != nil {
		return nil, err
	}
	return claimsOf(d), nil
}

func (p weakPlatform) Verify(ctx context.Context, token []byte, q *attest.Inquiry) (*document.Claims, error) {
	d, err := p(ctx, token, q.Now)
	if err == nil {
		err = q.Budget.Signature(ctx)
	}
	if err != nil {
		return nil, err
	}
	return claimsOf(d), nil
}

func claimsOf(d *gce.Details) *document.Claims {
	return &document.Claims{Machine: d.Machine(), Value: valueOf(d.Audience), Details: d}
}

func weakKind(t *testing.T, p weakPlatform) attest.Kind {
	t.Helper()
	return testkit.Must(document.NewKind(document.KindConfig{Provider: gce.Provider, Identities: []attest.Grammar{{Kind: "gce"}}, ValueSize: 32, Platform: p}))
}

// A join, over a metadata server, and its result.
func TestJoin(t *testing.T) {
	j := newJoin(t)
	r := testkit.Must(j.run())
	if r.Provider != "gce" || r.Road != attest.RoadDocument || r.Machine != "gce:example-project/4711000000000000001" ||
		r.MachineStanding != attest.Asserted || r.TPMResident || r.ResidenceStanding != "" {
		t.Errorf("%+v", r)
	}
	if d := gce.DetailsOf(r); d == nil || d.Instance != instance(1) {
		t.Errorf("%+v", d)
	}
	if gce.DetailsOf(&attest.Result{}) != nil {
		t.Error("details of another kind")
	}
	var names []string
	for _, f := range r.Facts() {
		names = append(names, f.Name)
		if f.Standing == attest.Proven && f.Name == "machine" {
			t.Errorf("%+v", f)
		}
	}
	for _, want := range []string{"instance", "project", "created", "service account"} {
		if !slices.Contains(names, want) {
			t.Errorf("no fact %s in %q", want, names)
		}
	}
}

// join is a control plane and a machine, each with something to be changed before it runs.
type join struct {
	t       *testing.T
	cloud   *cloudtest.GCE
	machine oid.GCEInstance // that answers
	hello   oid.GCEInstance // that says hello
	trust   gce.KindConfig
	config  attest.VerifierConfig
	known   csr.Machine
	answer  attest.Subject // the subject of the answering side
	tamper  func(token []byte) []byte
}

func newJoin(t *testing.T) *join {
	cloud := google(t)
	j := &join{t: t, cloud: cloud, machine: instance(1), hello: instance(1), trust: trust(t, cloud)}
	j.known = csr.Machine{Name: "vm-1", NodeName: "node-1", ProviderID: "gce://example-project/europe-west1-b/vm-1", BootstrapReady: true}
	ring := testkit.Must(attest.NewStaticKeyRing(attest.NewRingKey(now.Add(-time.Hour))))
	j.config = attest.VerifierConfig{KeyRing: ring, Now: func() time.Time { return now },
		Policy: &csr.Policy{ClusterIDs: []string{attesttest.ClusterID}, SignerNames: []string{clientSigner}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
			return &j.known, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			a := r.InsecureAdmitAnyone()
			a.ProviderID = j.known.ProviderID
			return a, nil
		})}
	return j
}

const clientSigner = "cluster.x-k8s.io/kube-apiserver-client-kubelet-gce"

// tamperingSource is a machine whose tokens are changed on the way.
type tamperingSource struct {
	*gce.Source
	change func([]byte) []byte
}

func (s *tamperingSource) Document(ctx context.Context, value []byte) ([]byte, error) {
	token, err := s.Source.Document(ctx, value)
	if err == nil && s.change != nil {
		token = s.change(token)
	}
	return token, err
}

func (j *join) attester(m oid.GCEInstance) *attest.Attester {
	j.t.Helper()
	server := j.cloud.Serve(m)
	j.t.Cleanup(server.Close)
	source, err := gce.NewSource(gce.SourceOptions{URL: server.URL})
	if err != nil {
		j.t.Fatal(err)
	}
	prover, err := document.NewProver(gce.Provider, 1, &tamperingSource{source, j.tamper})
	if err != nil {
		j.t.Fatal(err)
	}
	a, err := attest.NewAttester(prover)
	if err != nil {
		j.t.Fatal(err)
	}
	return a
}

func (j *join) run() (*attest.Result, error) {
	j.t.Helper()
	kind, err := gce.NewKind(j.trust)
	if err != nil {
		j.t.Fatal(err)
	}
	j.config.Kinds = []attest.Kind{kind}
	v, err := attest.NewVerifier(j.config)
	if err != nil {
		return nil, err
	}
	key := attestKey(j.t)
	subject := attest.Subject{SignerName: clientSigner, ClusterID: attesttest.ClusterID}
	if subject.Request, err = csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{}); err != nil {
		j.t.Fatal(err)
	}
	hello, err := j.attester(j.hello).Hello(j.t.Context(), subject)
	if err != nil {
		j.t.Fatal(err)
	}
	challenge, err := v.Challenge(j.t.Context(), filed(hello))
	if err != nil {
		return nil, err
	}
	if j.answer.SignerName != "" {
		subject.SignerName = j.answer.SignerName
	}
	if j.answer.ClusterID != "" {
		subject.ClusterID = j.answer.ClusterID
	}
	answer, err := j.attester(j.machine).Answer(j.t.Context(), challenge, key, subject)
	if err != nil {
		return nil, err
	}
	return v.Verify(j.t.Context(), filed(answer))
}

func filed(spec *csr.Spec) *csr.Request {
	r := &csr.Request{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest",
		Metadata: csr.Metadata{Name: "csr-1", UID: "1", CreationTimestamp: now}, Spec: *spec}
	r.User.Username, r.User.Groups = csr.BootstrapUserPrefix+"abcdef", []string{"system:bootstrappers", "system:authenticated"}
	return r
}

// TestRefusedJoins: a token for something else, with a good signature of Google's.
func TestRefusedJoins(t *testing.T) {
	replaced := func(j *join, change func(map[string]any)) {
		j.tamper = func(token []byte) []byte {
			claims := payload(j.t, string(token))
			change(claims)
			signed, err := j.cloud.Sign(marshal(j.t, claims))
			if err != nil {
				j.t.Fatal(err)
			}
			return []byte(signed)
		}
	}
	for name, c := range map[string]struct {
		change func(*join)
		want   attest.Check
	}{
		"as it is":                {func(*join) {}, ""},
		"another machine answers": {func(j *join) { j.machine = instance(2) }, attest.CheckBindingMachineKey},
		"a token of another instance": {func(j *join) {
			replaced(j, func(c map[string]any) { engineOf(c)["instance_id"] = "4711000000000000002" })
		}, attest.CheckMachineClaim},
		"a token of another project": {func(j *join) { replaced(j, func(c map[string]any) { engineOf(c)["project_id"] = "other-project" }) }, attest.CheckMachineClaim},
		"a token for another challenge": {func(j *join) {
			replaced(j, func(c map[string]any) { c["aud"] = audienceOf(bytes.Repeat([]byte{1}, 32)) })
		}, attest.CheckQualifyingData},
		"a token for half the value": {func(j *join) {
			replaced(j, func(c map[string]any) { c["aud"] = audienceOf(valueOf(c["aud"].(string))[:16]) })
		}, refusal.Check("gce-audience")},
		"a token for the bare value": {func(j *join) {
			replaced(j, func(c map[string]any) { c["aud"] = c["aud"].(string)[len("nodeattest:"):] })
		}, refusal.Check("gce-audience")},
		"a token for the value with a line end": {func(j *join) {
			replaced(j, func(c map[string]any) { c["aud"] = c["aud"].(string) + "\n" })
		}, refusal.Check("gce-audience")},
		"a token for the value with a carriage return inside": {func(j *join) {
			replaced(j, func(c map[string]any) { c["aud"] = c["aud"].(string)[:20] + "\r" + c["aud"].(string)[20:] })
		}, refusal.Check("gce-audience")},
		"a token of an hour ago": {func(j *join) {
			replaced(j, func(c map[string]any) { c["iat"], c["exp"] = now.Unix()-3600, now.Unix() })
		}, refusal.Check("gce-expired")},
		"a token of tomorrow": {func(j *join) {
			replaced(j, func(c map[string]any) { c["iat"], c["exp"] = now.Unix()+86400, now.Unix()+90000 })
		}, refusal.Check("gce-future")},
		"a project that is not admitted":             {func(j *join) { j.trust.Projects = []string{"other-project"} }, refusal.Check("gce-project")},
		"the inventory means another name":           {func(j *join) { j.known.ProviderID = "gce://example-project/europe-west1-b/vm-2" }, refusal.Check("provider-id-evidence")},
		"the inventory means another zone":           {func(j *join) { j.known.ProviderID = "gce://example-project/europe-west1-c/vm-1" }, refusal.Check("provider-id-evidence")},
		"the inventory means another project":        {func(j *join) { j.known.ProviderID = "gce://other-project/europe-west1-b/vm-1" }, refusal.Check("provider-id-evidence")},
		"the inventory is of AWS":                    {func(j *join) { j.known.ProviderID = "aws:///us-east-2a/i-0123456789abcdef0" }, refusal.Check("provider-id-evidence")},
		"the inventory is of Azure":                  {func(j *join) { j.known.ProviderID = "azure:///subscriptions/8a205152" }, refusal.Check("provider-id-evidence")},
		"the inventory is of another platform":       {func(j *join) { j.known.ProviderID = "metal3://namespace/host/machine" }, ""},
		"the inventory means the token's machine":    {func(j *join) { j.known.ProviderID = "gce://example-project/europe-west1-b/vm-1" }, ""},
		"the inventory knows no provider ID":         {func(j *join) { j.known.ProviderID = "" }, ""},
		"the node is of another cluster":             {func(j *join) { j.answer.ClusterID = "other" }, attest.CheckBindingCluster},
		"the node asks another signer":               {func(j *join) { j.answer.SignerName = "cluster.x-k8s.io/kubelet-serving-gce" }, attest.CheckBindingSigner},
		"the control plane wants a key in a TPM":     {func(j *join) { j.config.RequireTPMResident = true }, refusal.Check("key-not-resident")},
		"a token that is no longer as it was signed": {func(j *join) { j.tamper = func(b []byte) []byte { return b[:len(b)-2] } }, jws.Check("jws-signature-size")},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			c.change(j)
			r, err := j.run()
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, c.want) || r != nil || errors.Is(err, refusal.ErrRetry)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func engineOf(claims map[string]any) map[string]any {
	return claims["google"].(map[string]any)["compute_engine"].(map[string]any)
}

// The identity is that of the machine's AK certificate.
func TestSameIdentityAsAKCertificate(t *testing.T) {
	m := instance(1)
	value := testkit.Must(m.Marshal())
	id := []int{1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}
	got, err := tpmcert.GCEIdentity{}.Identify(&x509.Certificate{Extensions: []pkix.Extension{{Id: id, Value: value}}})
	if d := (&gce.Details{Instance: m}); err != nil || got != d.Machine() {
		t.Errorf("%q, %v, want %q", got, err, d.Machine())
	}
}
