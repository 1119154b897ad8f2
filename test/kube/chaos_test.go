package kube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// seedVar is the seed of a run of TestKills that is to be repeated.
const seedVar = "NODEATTEST_SEED"

// TestKills has nodes join again and again, half of them by Kubernetes' own signer and half
// by ours, while the API server, two replicas of the controller, the signer and the nodes'
// own program are killed at random points. Meanwhile answers come after their windows.
//
// The seed decides which process is killed and when, not the work of the process then.
func TestKills(t *testing.T) {
	t.Parallel()
	machines, joins := 5, 4
	if os.Getenv(longVar) != "" {
		machines, joins = 20, 10
	}
	seed := rand.Uint64()
	if text := os.Getenv(seedVar); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("to repeat it: %s=%d", seedVar, seed)
	s := newSiege(t, machines)
	s.seed = seed

	late, as := s.nodeOn(t, s.device, lateNode), s.client(t, s.bearer(t, attesttest.TokenID))
	ctx, cancel := context.WithTimeout(t.Context(), siegeLimit)
	defer cancel()
	var destroying, joining sync.WaitGroup
	calm, end := context.WithCancel(ctx)
	destroying.Go(func() { s.destroy(calm) })
	destroying.Go(func() { s.tooLate(calm, late, as) })
	began := time.Now()
	for n := range s.nodes {
		joining.Go(func() {
			if err := s.join(ctx, n, joins); err != nil {
				t.Errorf("node %s: %v", s.nodes[n].name, err)
			}
		})
	}
	joining.Wait()
	end()
	destroying.Wait()
	t.Logf("%d joins of %d machines in %s; killed: %v; %d answers came too late", s.done.Load(), machines, time.Since(began).Round(time.Second), s.killed, s.late)
	if s.late == 0 {
		t.Error("no answer came too late")
	}
	eventually(t, func() error { return controlplane.Healthy(s.replicas[0].health + "/healthz") })
	requests := s.settled(t)
	for _, m := range s.nodes {
		s.checkNode(t, m)
	}
	s.checkRequests(t, requests)
	s.checkOneToOne(t)
	answer, err := s.answer(t.Context(), late, s.usual)
	if err != nil {
		t.Fatal(err)
	}
	if object := decided(t, as, file(t, as, answer)); len(object.Status.Certificate) == 0 {
		t.Errorf("an answer in time gets %+v", object.Status.Conditions)
	}
	for _, r := range s.replicas {
		if text := r.text(t); strings.Contains(text, tokenSecret) || strings.Contains(text, "PRIVATE") || strings.Contains(text, "panic: ") {
			t.Errorf("%s has logged a secret, or died by itself:\n%s", r.name, r.tail())
		}
	}
}

// siegeLimit is when it is given up that nodes join.
const siegeLimit = 30 * time.Minute

// siege is a cluster in which processes are killed.
type siege struct {
	*cluster
	t      *testing.T
	seed   uint64
	device *tpmsim.TPM // of the node that is too late
	ring   *attest.KeyRing
	// hasty wants answers sooner than the usual control plane.
	hasty, usual *attest.Verifier
	nodes        []*nodeMachine
	// machines are the identities of the nodes' machines, by node name.
	machines map[string]attest.Identity
	// control are the processes that are restarted when they end, victims the ones that are killed.
	control, victims []*process
	replicas         []*replica

	done atomic.Int32 // joins that came to their end
	mu   sync.Mutex
	// killed counts them by name.
	killed map[string]int
	late   int
}

// lateNode is the node whose answers come too late.
const lateNode = "late"

func newSiege(t *testing.T, machines int) *siege {
	t.Helper()
	program := buildProgram(t, "kubelet-authenticator")
	s := &siege{cluster: startCluster(t), t: t, machines: map[string]attest.Identity{}, killed: map[string]int{}}
	s.prepare(t)
	signer := s.startSigner(t)
	ca := newCA(t, "")
	s.device = tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true})
	names := []string{lateNode}
	for n := range machines {
		name, device := fmt.Sprintf("node-%d", n), tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true})
		names = append(names, name)
		s.machines[name] = identityOf(t, device)
		s.nodes = append(s.nodes, s.install(t, program, name, device, func(config map[string]any) {
			config["lifetime"] = "1h"
			if n%2 == 1 {
				config["signerName"] = csr.SignerClientTPM
			}
		}))
	}
	own := s.ownSigning(t, s.device, names...)
	both := func(config map[string]any) {
		own(config)
		config["signers"].(map[string]any)["names"] = []any{csr.SignerKubeAPIServerClientKubelet, csr.SignerClientTPM}
	}
	s.replicas = s.startOwnSigners(t, both)
	s.replicas = append(s.replicas, s.startController(t, buildProgram(t, "node-attestation-controller"), "controller-2", both))
	s.victims = []*process{s.server}
	for _, r := range s.replicas {
		s.victims = append(s.victims, r.process)
	}
	s.control = append(slices.Clone(s.victims), signer)
	s.ring = new(attest.KeyRing)
	s.hasty, s.usual = s.makeVerifier(t, lateWindow), s.makeVerifier(t, 0)
	return s
}

// makeVerifier makes a control plane with the keys of the real one, whose challenges are to
// be answered within a window.
func (s *siege) makeVerifier(t *testing.T, window time.Duration) *attest.Verifier {
	t.Helper()
	config := attesttest.NewControlPlane(t, s.nodeOn(t, s.device, lateNode)).Config
	config.KeyRing, config.Window = s.ring, window
	config.Policy = &csr.Policy{ClusterIDs: []string{s.clusterID(s.t)}, SignerNames: []string{csr.SignerKubeAPIServerClientKubelet}, Machines: new(inventory).machine}
	v, err := attest.NewVerifier(config)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const lateWindow = 2 * time.Second

// random is a source of its own for everybody who acts.
func (s *siege) random(who int) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed, uint64(who))) //nolint:gosec // not a secret
}

// The actors other than the nodes.
const destroyer = 1000

// between is a time between two.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// destroy kills one victim after the other, and starts whatever has ended again, until ctx
// is over. Between two it waits until nodes have joined, so that it comes to an end.
func (s *siege) destroy(ctx context.Context) {
	r := s.random(destroyer)
	again := map[*process]time.Time{}
	var deck []*process
	next, needed := time.Now().Add(between(r, 0, 3*time.Second)), int32(0)
	for calm := false; !calm || len(again) != 0; time.Sleep(20 * time.Millisecond) {
		calm = calm || ctx.Err() != nil
		now := time.Now()
		for _, p := range s.control {
			switch at, waits := again[p]; {
			case !p.ended():
			case !waits:
				again[p] = now.Add(between(r, 0, 3*time.Second))
			case now.After(at):
				if err := p.launch(); err != nil {
					s.t.Errorf("%s: %v", p.name, err)
					return
				}
				delete(again, p)
			}
		}
		if calm || now.Before(next) || s.done.Load() < needed {
			continue
		}
		if len(deck) == 0 {
			deck = slices.Clone(s.victims)
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		victim := deck[0]
		deck = deck[1:]
		if !victim.ended() {
			_ = victim.cmd.Process.Kill() // it may have ended by itself
			<-victim.done
			s.kill(victim.name)
		}
		next, needed = now.Add(between(r, 0, 2*time.Second)), s.done.Load()+1+r.Int32N(4)
	}
}

func (s *siege) kill(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed[name]++
}

// join has one machine join n times: as one that was installed again, or with the
// certificate that it has.
func (s *siege) join(ctx context.Context, who, n int) error {
	m, r := s.nodes[who], s.random(who)
	state := filepath.Join(m.dir, "state")
	for number := range n {
		command := "rotate"
		if number == 0 || r.IntN(2) == 0 {
			command = "credential"
			if err := os.RemoveAll(state); err != nil {
				return err
			}
		}
		if err := s.joinOnce(ctx, m, r, command); err != nil {
			return fmt.Errorf("join %d, %s: %w", number, command, err)
		}
		s.done.Add(1)
	}
	return nil
}

// joinOnce runs a command until it comes to its end. Some of the runs are killed.
func (s *siege) joinOnce(ctx context.Context, m *nodeMachine, r *rand.Rand, command string) error {
	kills := r.IntN(4)
	for {
		limit := time.Duration(0)
		if kills > 0 {
			limit = between(r, 20*time.Millisecond, 1500*time.Millisecond)
		}
		kills--
		killed, said, err := m.killable(ctx, limit, command)
		if ctx.Err() != nil {
			return fmt.Errorf("it does not come to its end: %w: %s", err, said)
		}
		if killed {
			s.kill("authenticator")
		}
		if stored := m.stored(err == nil); stored != nil {
			return stored
		}
		switch {
		case err == nil:
			return nil
		case !killed && strings.Contains(said, "was denied with reason"):
			return fmt.Errorf("it was refused: %s", said)
		}
		time.Sleep(between(r, 50*time.Millisecond, 500*time.Millisecond))
	}
}

// killable runs the program to its end, or kills it after a while.
func (m *nodeMachine) killable(ctx context.Context, limit time.Duration, args ...string) (killed bool, said string, err error) {
	cmd := exec.CommandContext(ctx, m.program, append([]string{"-config", m.config}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return false, "", err
	}
	var dead atomic.Bool
	if limit != 0 {
		timer := time.AfterFunc(limit, func() { dead.Store(cmd.Process.Kill() == nil) })
		defer timer.Stop()
	}
	err = cmd.Wait()
	return dead.Load() && err != nil, errs.String(), err
}

// stored returns the faults of the program's stored state. Where there must be a
// certificate, a missing one is wrong too.
func (m *nodeMachine) stored(must bool) error {
	store, err := certstore.Open(filepath.Join(m.dir, "state"))
	if err != nil {
		return err
	}
	p, err := store.ReadPair(authenticator.ClientFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !must:
		return nil
	case err != nil:
		return fmt.Errorf("what is stored: %w", err)
	case p.Leaf.Subject.CommonName != csr.NodeUserPrefix+m.name:
		return fmt.Errorf("what is stored is for %s", p.Leaf.Subject)
	}
	return nil
}

// tooLate answers challenges after their windows until ctx is over, at least once.
func (s *siege) tooLate(ctx context.Context, n *attesttest.Node, as client.Client) {
	for first := true; first || ctx.Err() == nil; first = false {
		answer, err := s.answer(s.t.Context(), n, s.hasty)
		if err != nil {
			s.t.Errorf("answer: %v", err)
			return
		}
		time.Sleep(lateWindow + 1100*time.Millisecond) // the server's times are whole seconds
		object, err := decision(s.t.Context(), as, answer)
		if err != nil {
			s.t.Errorf("a late answer: %v", err)
			return
		}
		if c := object.Status.Conditions[0]; c.Type != "Denied" || c.Reason != "AnswerLate" || len(object.Status.Certificate) != 0 {
			s.t.Errorf("a late answer: %+v", object.Status)
		}
		s.late++
	}
}

// answer answers a challenge, made with the cluster's keys.
func (s *siege) answer(ctx context.Context, n *attesttest.Node, v *attest.Verifier) (*csr.Spec, error) {
	var secret corev1.Secret
	if err := retried(func() error {
		return s.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "challenge-keys"}, &secret)
	}); err != nil {
		return nil, err
	}
	keys, err := attest.ParseRingKeys(secret.Data)
	if err == nil {
		err = s.ring.Refresh(keys, time.Now())
	}
	if err != nil {
		return nil, err
	}
	hello, err := n.Hello(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	challenge, err := v.Challenge(ctx, hello)
	if err != nil {
		return nil, err
	}
	return n.Attester.Answer(ctx, challenge, n.Certified, n.Subject)
}

// checkState looks for what killed writers have left behind: the next write of each file takes
// it away.
func (m *nodeMachine) checkState(t *testing.T) {
	t.Helper()
	store, err := certstore.Open(filepath.Join(m.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := store.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{authenticator.ClientFile, "state.json"} {
		content, err := store.Read(name, 1<<20)
		if err == nil {
			err = lock.Write(name, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(m.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{authenticator.ClientFile, "client.previous.pem", "state.json", ".lock"}, e.Name()) {
			t.Errorf("%s: %s is left over", m.name, e.Name())
		}
	}
}

// checkNode looks at a node's certificate: it works, and is that of its machine.
func (s *siege) checkNode(t *testing.T, m *nodeMachine) {
	t.Helper()
	_, pair := m.credential(t)
	m.checkState(t)
	var review authenticationv1.SelfSubjectReview
	if err := s.withCertificate(t, pair).Create(t.Context(), &review); err != nil {
		t.Errorf("%s: %v", m.name, err)
		return
	}
	id := csr.CredentialID(pair.Leaf)
	if user := review.Status.UserInfo; user.Username != csr.NodeUserPrefix+m.name || !slices.Equal(user.Extra[csr.ExtraCredentialID], []string{id}) {
		t.Errorf("%s comes as %+v", m.name, user)
	}
	s.recorded(t, m.name, pair.Leaf)
}

// settled waits until everything is decided, signed and recorded, and returns the requests.
func (s *siege) settled(t *testing.T) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	var requests certificatesv1.CertificateSigningRequestList
	eventually(t, func() error {
		if err := s.admin.List(t.Context(), &requests); err != nil {
			return err
		}
		requests.Items = slices.DeleteFunc(requests.Items, func(o certificatesv1.CertificateSigningRequest) bool {
			return !slices.Contains([]string{csr.SignerChallengeTPM, csr.SignerClientTPM, csr.SignerKubeAPIServerClientKubelet}, o.Spec.SignerName)
		})
		for i := range requests.Items {
			o := &requests.Items[i]
			if len(o.Status.Conditions) == 0 || o.Status.Conditions[0].Type == certificatesv1.CertificateApproved && len(o.Status.Certificate) == 0 {
				return fmt.Errorf("request %s of %s is not finished: %+v", o.Name, o.CreationTimestamp.UTC(), o.Status.Conditions)
			}
		}
		return nil
	})
	eventually(t, func() error {
		var all v1alpha1.AttestedNodeList
		if err := s.admin.List(t.Context(), &all); err != nil {
			return err
		}
		for i := range all.Items {
			name, spec := all.Items[i].Name, &all.Items[i].Spec
			if spec.State != v1alpha1.NodeBound || spec.Pending != nil || spec.Machine != string(s.machines[name]) {
				return fmt.Errorf("node %s: %+v, want it to be machine %s", name, spec, s.machines[name])
			}
			for _, issued := range spec.Certificates {
				if issued.CredentialID == "" || issued.Machine != spec.Machine || issued.NotAfter.After(spec.LastEnd.Time) {
					return fmt.Errorf("node %s: certificate %+v", name, issued)
				}
			}
		}
		if len(all.Items) != len(s.nodes) {
			return fmt.Errorf("%d nodes, want %d", len(all.Items), len(s.nodes))
		}
		return nil
	})
	return requests.Items
}

// checkRequests holds every decision against the evidence, as it was filed: who was approved
// came in time and with the node's machine, and each certificate is recorded for its request.
func (s *siege) checkRequests(t *testing.T, requests []certificatesv1.CertificateSigningRequest) {
	t.Helper()
	counts, issued := map[string]int{}, map[string][]*certificatesv1.CertificateSigningRequest{}
	for i := range requests {
		o := &requests[i]
		condition := o.Status.Conditions[0]
		counts[o.Spec.SignerName+" "+condition.Reason]++
		if o.Spec.SignerName == csr.SignerChallengeTPM {
			if condition.Reason != "AttestationChallenge" {
				t.Errorf("hello %s: %s: %s", o.Name, condition.Reason, condition.Message)
			}
			continue
		}
		request := controller.Request(o).Parsed()
		pkcs10, err := request.PKCS10()
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(pkcs10.CSR.Subject.CommonName, csr.NodeUserPrefix)
		reading, err := attest.ReadMessage(request, new(tpmkind.Kind))
		if err != nil {
			t.Errorf("answer %s of node %s: %v", o.Name, name, err)
			continue
		}
		inTime, approved := !o.CreationTimestamp.After(reading.NotAfter), condition.Type == certificatesv1.CertificateApproved
		if approved != inTime || len(o.Status.Conditions) != 1 {
			t.Errorf("answer %s of node %s, from %s for a window until %s: %+v", o.Name, name, o.CreationTimestamp.UTC(), reading.NotAfter, o.Status.Conditions)
		}
		if machine := attest.Identity(fmt.Sprintf("ek:sha256:%x", sha256.Sum256(reading.MachineKey))); approved && machine != s.machines[name] {
			t.Errorf("answer %s of node %s was approved for %s", o.Name, name, machine)
		}
		if approved {
			issued[name] = append(issued[name], o)
		}
	}
	t.Logf("requests: %v", counts)
	for name, all := range issued {
		s.checkRecords(t, name, all)
	}
}

// checkRecords looks for the record of each of a node's certificates, where there is room for
// all of them.
func (s *siege) checkRecords(t *testing.T, name string, issued []*certificatesv1.CertificateSigningRequest) {
	t.Helper()
	var node v1alpha1.AttestedNode
	if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		t.Fatal(err)
	}
	records := node.Spec.Certificates
	if want := min(len(issued), membership.MaxIssued); len(records) < want {
		t.Errorf("node %s has %d records of %d certificates", name, len(records), want)
	}
	if len(records) >= membership.MaxIssued {
		return
	}
	for _, o := range issued {
		block, _ := pem.Decode(o.Status.Certificate)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(records, func(r v1alpha1.IssuedCertificate) bool {
			return r.CredentialID == csr.CredentialID(leaf) && r.RequestUID == string(o.UID) &&
				r.SPKISHA256 == fmt.Sprintf("%x", sha256.Sum256(leaf.RawSubjectPublicKeyInfo))
		}) {
			t.Errorf("node %s: no record of the certificate of request %s: %+v", name, o.Name, records)
		}
	}
}

// identityOf is the machine's identity by its EK.
func identityOf(t *testing.T, device *tpmsim.TPM) attest.Identity {
	t.Helper()
	ek, err := tpmcert.ParseEK(device.EKCertificate(tpmsim.RSA2048).Raw)
	if err != nil {
		t.Fatal(err)
	}
	return ek.Identity()
}

// retried repeats a step that fails while the API server is away.
func retried(step func() error) error {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = step(); err == nil {
			return nil
		}
	}
	return err
}

// decision files a request, and waits for a decision.
func decision(ctx context.Context, as client.Client, spec *csr.Spec) (*certificatesv1.CertificateSigningRequest, error) {
	object := requestOf(spec)
	if err := retried(func() error { return as.Create(ctx, object) }); err != nil {
		return nil, err
	}
	return object, retried(func() error {
		if err := as.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if len(object.Status.Conditions) == 0 {
			return errNotYet
		}
		return nil
	})
}
