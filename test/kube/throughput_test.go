package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// joinsAtOnce is how many nodes join at a time.
const joinsAtOnce = 20

// turn is how many nodes take a step before the next step is theirs, and warm how many have
// joined when the memory is measured that later ones are held against.
const turn, warm = 250, 100

// TestThroughput has nodes join by attestation, with first use, registry and issued records,
// between as many that get their certificates from Kubernetes' own approver and signer
// alone, as many of them at once: it measures a write by either way, and the memory that joins
// leave, in addition to the programs' after their first.
// It is the control plane that is measured: what nodes do by themselves, such as the work of
// their TPMs, which are keys in software, is done between the steps that are timed.
func TestThroughput(t *testing.T) {
	nodes, whole := 500, os.Getenv(longVar) != ""
	if whole {
		nodes *= 10
	}
	controllerProgram, signerProgram := buildProgram(t, "node-attestation-controller"), buildProgram(t, "node-attestation-signer")
	for name, row := range map[string]struct {
		signer        string
		writes, reads int // of an attested join, with a Machine UID
	}{
		"Kubernetes' own signer": {csr.SignerKubeAPIServerClientKubelet, 10, 0},
		"our signer":             {csr.SignerClientTPM, 9, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRace(t, nodes+warm, row.signer)
			before := r.plain(t, nodes/2, "before")
			programs := r.start(t, controllerProgram, signerProgram)
			r.attested(t, r.names[nodes:], programs[0])
			memory := resident(t, programs)
			attested := r.attested(t, r.names[:nodes], programs[0])
			r.checkRecords(t)
			if perJoin := float64(attested.writes) / float64(nodes); perJoin > float64(row.writes)+0.1 {
				t.Errorf("%.2f writes a join, want %d", perJoin, row.writes)
			}
			if perJoin := float64(attested.reads) / float64(nodes); perJoin > float64(row.reads)+0.1 {
				t.Errorf("%.2f reads a join, want %d", perJoin, row.reads)
			}
			checkMemory(t, programs, memory)
			stop(t, programs)
			after := r.plain(t, nodes/2, "after")
			// Writes a second of time, and of all programs' processor time.
			plain := took{took: before.took + after.took, work: before.work + after.work, writes: before.writes + after.writes}
			byTime := attested.rate(attested.took) / plain.rate(plain.took)
			byWork := attested.rate(attested.work) / plain.rate(plain.work)
			t.Logf("of the rate of plain writes: %.2f by time, %.2f by processor time", byTime, byWork)
			if whole && byTime < 0.8 { // a short run, with other load, says too little
				t.Error("want 0.8 of the rate at least, by time")
			}
		})
	}
}

// checkMemory holds what programs have after the joins against half as much again as they
// had. It waits until Go returns freed memory to the system.
func checkMemory(t *testing.T, programs []*replica, before []float64) {
	t.Helper()
	for i, p := range programs {
		var now float64
		for range 12 {
			if now = resident(t, programs)[i]; now <= 1.5*before[i] {
				break
			}
			time.Sleep(5 * time.Second)
		}
		t.Logf("%s: %.0f MB before, %.0f MB after, %.2f times as much", p.name, before[i], now, now/before[i])
		if now > 1.5*before[i] {
			t.Errorf("%s has %.0f MB after the joins, and had %.0f MB before", p.name, now, before[i])
		}
	}
}

// race is a cluster and its nodes.
type race struct {
	c          *cluster
	signer     string // of attested joins
	bench      *forge.Bench
	join       map[string]forge.Join // by the names of machines and nodes
	names      []string
	bootstrap  client.Client // the nodes that attest
	unattested client.Client // that do not
	mu         sync.Mutex
	waiting    map[string]chan *certificatesv1.CertificateSigningRequest
	filed      atomic.Int64
	recorded   int // certificates of nodes that have attested
}

// unattested is the user of nodes that join without attestation, and the binding by which
// Kubernetes' own approver approves them.
const unattested = "unattested"

// took is what some joins took: time, and processor time of all programs.
type took struct {
	took, work    time.Duration
	writes, reads int
}

func (j *took) rate(of time.Duration) float64 { return float64(j.writes) / of.Seconds() }

// newRace starts the cluster, in which Kubernetes' own approver and signer run as fast as
// they can, and makes the nodes' keys.
func newRace(t *testing.T, nodes int, signer string) *race {
	t.Helper()
	r := &race{c: startCluster(t), signer: signer, join: map[string]forge.Join{}, waiting: map[string]chan *certificatesv1.CertificateSigningRequest{}}
	r.c.prepare(t)
	r.c.apply(t, "signer/rbac.yaml")
	r.c.startSigner(t, "--kube-api-qps=1000", "--kube-api-burst=1000")
	r.bootstrap = r.c.client(t, r.c.bearer(t, attesttest.TokenID))
	r.unattested = r.c.client(t, r.c.user(t, unattested))
	for name, role := range map[string]string{unattested: "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "files": "system:node-bootstrapper"} {
		if err := r.c.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: unattested}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.makeNodes(t, nodes)
	r.watch(t)
	return r
}

func (r *race) makeNodes(t *testing.T, nodes int) {
	t.Helper()
	ca := newCA(t, "")
	clusterID := r.c.clusterID(t)
	r.bench = &forge.Bench{Now: time.Now(), ClusterID: clusterID, Bootstrap: csr.BootstrapUserPrefix + attesttest.TokenID, CA: ca, Machines: map[string]*forge.Machine{}}
	r.bench.MakeKeys(nil)
	inventory := []byte("machines:\n")
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		ek, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		r.bench.Machines[name] = &forge.Machine{AK: r.bench.AKP256, EK: r.bench.NewEK(ek)}
		j := forge.Join{Key: controlplane.NewKey(t), Signer: r.signer, Expiration: 3600}
		if j.Request, err = csr.Create(csr.PurposeClient, j.Key, name, csr.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.join[name], r.names = j, append(r.names, name)
		inventory = append(inventory, "- nodeName: "+name+"\n"...)
	}
	controlplane.Write(t, r.c.dir, "inventory.yaml", inventory)
	controlplane.Write(t, r.c.dir, "ek-roots.pem", controlplane.CertificatePEM(ca.Root()))
}

// configure is the configuration of the programs.
func (r *race) configure(t *testing.T) func(config map[string]any) {
	t.Helper()
	return func(config map[string]any) {
		members := config["membership"].(map[string]any)
		members["mode"], members["identityClass"] = "FirstUse", "P-256"
		config["signers"] = map[string]any{"names": []any{r.signer}, "maxLifetime": "1h"}
		config["signer"].(map[string]any)["certificateFile"] = controlplane.Write(t, r.c.dir, "signer.crt", controlplane.CertificatePEM(r.c.ca.Cert))
		config["signer"].(map[string]any)["keyFile"] = controlplane.Write(t, r.c.dir, "signer.key", controlplane.PrivatePEM(t, r.c.ca.Key))
		limits := config["controller"].(map[string]any) // all come with one token
		limits["requesterRate"], limits["requesterBurst"] = 10000, 10000
		limits["acceptedBindings"] = []any{unattested}
	}
}

// start starts the programs that the signer takes, and waits until they are ready.
func (r *race) start(t *testing.T, controllerProgram, signerProgram string) []*replica {
	t.Helper()
	programs := []*replica{r.c.startController(t, controllerProgram, "controller", r.configure(t))}
	if csr.ProviderOf(r.signer) != "" {
		programs = append(programs, r.c.startProgram(t, signerProgram, "signer", "signer", r.configure(t)))
	}
	for _, p := range programs {
		p.isReady(t)
	}
	return programs
}

func stop(t *testing.T, programs []*replica) {
	t.Helper()
	for _, p := range programs {
		if status := p.stop(t); status != 0 {
			t.Errorf("%s ended with status %d", p.name, status)
		}
	}
}

// resident is the programs' resident memory in megabytes.
func resident(t *testing.T, programs []*replica) []float64 {
	t.Helper()
	var all []float64
	for _, p := range programs {
		all = append(all, counted(t, p, "process_resident_memory_bytes")[""]/1e6)
	}
	return all
}

// watch hands requests that are finished to who waits for them: as nodes do, but with one
// watch for all, so that watches are not measured.
func (r *race) watch(t *testing.T) {
	t.Helper()
	config := r.c.user(t, "watcher", "system:masters")
	config.Timeout = 0
	watcher, err := client.NewWithWatch(config, client.Options{Scheme: r.c.scheme})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watcher.Watch(t.Context(), new(certificatesv1.CertificateSigningRequestList))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			o, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || len(o.Status.Conditions) == 0 || o.Status.Conditions[0].Type == certificatesv1.CertificateApproved && len(o.Status.Certificate) == 0 {
				continue
			}
			r.mu.Lock()
			if waits := r.waiting[o.Name]; waits != nil {
				delete(r.waiting, o.Name)
				waits <- o
			}
			r.mu.Unlock()
		}
	}()
}

var errNotFinished = errors.New("the request is not finished")

// file files a request and waits until it is finished.
func (r *race) file(t *testing.T, as client.Client, spec *csr.Spec) (*certificatesv1.CertificateSigningRequest, error) {
	o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("race-%d", r.filed.Add(1))},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: spec.Request, SignerName: spec.SignerName, ExpirationSeconds: spec.ExpirationSeconds}}
	for _, usage := range spec.Usages {
		o.Spec.Usages = append(o.Spec.Usages, certificatesv1.KeyUsage(usage))
	}
	waits := make(chan *certificatesv1.CertificateSigningRequest, 1)
	r.mu.Lock()
	r.waiting[o.Name] = waits
	r.mu.Unlock()
	if err := as.Create(t.Context(), o); err != nil {
		return nil, err
	}
	select {
	case o := <-waits:
		return o, nil
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("%w: %s, to %s", errNotFinished, o.Name, o.Spec.SignerName)
	}
}

// each does something for each name, joinsAtOnce at a time, and adds the time.
func (j *took) each(t *testing.T, names []string, do func(name string) error, whole func()) {
	t.Helper()
	worked, began := work(t), time.Now()
	todo := make(chan string)
	var done sync.WaitGroup
	for range joinsAtOnce {
		done.Go(func() {
			for name := range todo {
				if err := do(name); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for _, name := range names {
		todo <- name
	}
	close(todo)
	done.Wait()
	whole()
	j.took, j.work = j.took+time.Since(began), j.work+work(t)-worked
	if t.Failed() {
		t.FailNow()
	}
}

// count adds the requests to the API server from an audit log, and logs the ones that are
// asked for each join.
func (j *took) count(t *testing.T, what string, log []audited, nodes int) {
	t.Helper()
	writes, reads := cost(log)
	j.writes, j.reads = len(writes), len(reads)
	t.Logf("%s: %d joins in %s, %s of work, %d writes and %d reads", what, nodes, j.took.Round(time.Millisecond), j.work, j.writes, j.reads)
	asked := map[string]int{}
	for i := range log {
		asked[log[i].Verb+" "+log[i].ObjectRef.Resource+"/"+log[i].ObjectRef.Subresource]++
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if perJoin := float64(asked[name]) / float64(nodes); perJoin > 0.05 {
			t.Logf("  %.2f × %s", perJoin, name)
		}
	}
}

// plain has nodes join without attestation, and clears their requests away.
func (r *race) plain(t *testing.T, nodes int, when string) took {
	t.Helper()
	var got took
	logged := len(r.c.audit(t))
	for names := range slices.Chunk(r.names[:nodes], turn) {
		got.each(t, names, func(name string) error {
			j := r.join[name]
			spec, err := (&csr.Bundle{Request: j.Request}).Spec(csr.SignerKubeAPIServerClientKubelet, j.Expiration)
			if err != nil {
				return err
			}
			return certified(r.file(t, r.unattested, spec))
		}, func() {})
	}
	got.count(t, "plain, "+when, r.c.audit(t)[logged:], nodes)
	if err := r.c.admin.DeleteAllOf(t.Context(), new(certificatesv1.CertificateSigningRequest)); err != nil {
		t.Fatal(err)
	}
	return got
}

func certified(o *certificatesv1.CertificateSigningRequest, err error) error {
	if err != nil {
		return err
	}
	if block, _ := pem.Decode(o.Status.Certificate); block == nil {
		return fmt.Errorf("no certificate: %+v", o.Status.Conditions)
	}
	return nil
}

// attested has nodes join through attestation, each as a machine of its own, until their
// certificates are recorded.
func (r *race) attested(t *testing.T, names []string, controls *replica) took {
	t.Helper()
	var got took
	logged := len(r.c.audit(t))
	for turn := range slices.Chunk(names, turn) {
		r.attestedTurn(t, &got, turn, controls)
	}
	got.count(t, "attested", r.c.audit(t)[logged:], len(names))
	return got
}

// A prover is a node that attests. It works by itself, outside of the measured times.
type prover struct {
	hello     chan *csr.Request
	challenge chan *message.Challenge
	answer    chan *csr.Spec
	err       error // where answer is closed
}

// errUnfiled ends a prover whose hello was not answered.
var errUnfiled = errors.New("there is no challenge")

func (r *race) prove(name string) *prover {
	p := &prover{hello: make(chan *csr.Request, 1), challenge: make(chan *message.Challenge, 1), answer: make(chan *csr.Spec, 1)}
	try := &forge.Try{Bench: r.bench, Road: attest.RoadEK, Challenge: func(hello *csr.Request) (*message.Challenge, error) {
		p.hello <- hello
		if c := <-p.challenge; c != nil {
			return c, nil
		}
		return nil, errUnfiled
	}}
	go func() {
		defer close(p.answer)
		defer forge.Caught(&p.err)
		bundle, err := try.Prove(name, r.join[name])
		if err == nil {
			var spec *csr.Spec
			if spec, err = bundle.Spec(r.signer, r.join[name].Expiration); err == nil {
				p.answer <- spec
			}
		}
		p.err = err
	}()
	return p
}

// attestedTurn has some nodes file their hellos, and then their answers.
func (r *race) attestedTurn(t *testing.T, got *took, names []string, controls *replica) {
	t.Helper()
	provers, hellos, answers := map[string]*prover{}, map[string]*csr.Request{}, map[string]*csr.Spec{}
	for _, name := range names {
		provers[name] = r.prove(name)
	}
	for name, p := range provers {
		hellos[name] = <-p.hello
	}
	got.each(t, names, func(name string) error {
		c, err := r.challenged(t, &hellos[name].Spec)
		provers[name].challenge <- c
		return err
	}, func() {})
	for name, p := range provers {
		spec, ok := <-p.answer
		if !ok {
			t.Fatalf("%s: %v", name, p.err)
		}
		answers[name] = spec
	}
	got.each(t, names, func(name string) error { return certified(r.file(t, r.bootstrap, answers[name])) }, func() {
		r.recorded += len(names)
		if csr.ProviderOf(r.signer) != "" { // they are recorded before they are published
			return
		}
		eventually(t, func() error {
			if n := counted(t, controls, "nodeattest_certificates_total")[`result="recorded"`]; int(n) != r.recorded {
				return fmt.Errorf("%.0f certificates are recorded", n)
			}
			return nil
		})
	})
}

// challenged files a hello, and returns its challenge.
func (r *race) challenged(t *testing.T, hello *csr.Spec) (*message.Challenge, error) {
	o, err := r.file(t, r.bootstrap, hello)
	if err != nil {
		return nil, err
	}
	challenge, err := attest.ChallengeOf(controller.Request(o))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", err, o.Status.Conditions[0].Reason, o.Status.Conditions[0].Message)
	}
	return message.ParseChallenge(challenge)
}

// checkRecords looks for the records of all that have joined.
func (r *race) checkRecords(t *testing.T) {
	t.Helper()
	var records v1alpha1.AttestedNodeList
	if err := r.c.admin.List(t.Context(), &records); err != nil {
		t.Fatal(err)
	}
	for i := range records.Items {
		if s := &records.Items[i].Spec; s.State != v1alpha1.NodeBound || len(s.Certificates) != 1 || s.Certificates[0].CredentialID == "" {
			t.Errorf("%s: %+v", records.Items[i].Name, s)
		}
	}
	if len(records.Items) != len(r.names) {
		t.Errorf("%d nodes are recorded, want %d", len(records.Items), len(r.names))
	}
}
