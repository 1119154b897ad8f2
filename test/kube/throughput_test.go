package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
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
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// joinsAtOnce is how many nodes join at a time.
const joinsAtOnce = 20

// TestThroughput has nodes join by attestation, with first use, registry and issued records,
// between as many that get their certificates from Kubernetes' own approver and signer
// alone: a write costs about the same by either way, and joins leave no more in memory than
// what a process reads that starts beside as many nodes.
// The nodes' TPMs are keys in software, since a simulated one is slower than what is
// measured.
func TestThroughput(t *testing.T) {
	nodes, whole := 500, os.Getenv(longVar) != ""
	if whole {
		nodes *= 10
	}
	controllerProgram, signerProgram := buildProgram(t, "node-attestation-controller"), buildProgram(t, "node-attestation-signer")
	for name, row := range map[string]struct {
		signer string
		writes int // of an attested join, with a Machine UID
	}{
		"Kubernetes' own signer": {csr.SignerKubeAPIServerClientKubelet, 10},
		"our signer":             {csr.SignerClientTPM, 9},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRace(t, nodes, row.signer)
			before := r.plain(t, nodes/2, "before")
			programs := r.start(t, "", controllerProgram, signerProgram)
			memory := resident(t, programs)
			attested := r.attested(t, nodes, programs[0])
			if perJoin := float64(attested.writes) / float64(nodes); perJoin > float64(row.writes)+0.1 {
				t.Errorf("%.2f writes a join, want %d", perJoin, row.writes)
			}
			if perJoin := float64(attested.reads) / float64(nodes); perJoin > 6.1 {
				t.Errorf("%.2f reads a join, want at most 6", perJoin)
			}
			later := resident(t, programs)
			stop(t, programs)
			fresh := r.start(t, "-again", controllerProgram, signerProgram)
			for i, again := range resident(t, fresh) {
				t.Logf("%s: %.0f MB before, %.0f MB after, %.0f MB when started again", programs[i].name, memory[i], later[i], again)
				if later[i] > 1.5*again {
					t.Errorf("%s has %.0f MB after %d joins, and %.0f MB when it is started again", programs[i].name, later[i], nodes, again)
				}
			}
			stop(t, fresh)
			after := r.plain(t, nodes/2, "after")
			// Writes a second of time, and of all programs' processor time.
			plain := took{took: before.took + after.took, work: before.work + after.work, writes: before.writes + after.writes}
			byTime := attested.rate(attested.took) / plain.rate(plain.took)
			byWork := attested.rate(attested.work) / plain.rate(plain.work)
			t.Logf("of the rate of plain writes: %.2f by time, %.2f by processor time", byTime, byWork)
			if whole && byTime < 0.8 { // a short run, beside other work, says too little
				t.Error("want 0.8 of the rate at least, by time")
			}
		})
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
	unattested client.Client // those that do not
	mu         sync.Mutex
	waiting    map[string]chan *certificatesv1.CertificateSigningRequest
	filed      atomic.Int64
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
	manifests, err := deploy.SignerRBAC()
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range manifests {
		r.c.create(t, manifest)
	}
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
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clusterID, err := attest.ClusterID(r.c.ca.cert)
	if err != nil {
		t.Fatal(err)
	}
	r.bench = &forge.Bench{Now: time.Now(), ClusterID: clusterID, Bootstrap: csr.BootstrapUserPrefix + attesttest.TokenID, CA: ca, Machines: map[string]*forge.Machine{}}
	r.bench.MakeKeys(false)
	inventory := []byte("machines:\n")
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		ek, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		r.bench.Machines[name] = &forge.Machine{AK: r.bench.AKP256, EK: r.bench.NewEK(ek)}
		j := forge.Join{Key: newKey(t), Signer: r.signer, Expiration: 3600}
		if j.Request, err = csr.Create(csr.PurposeClient, j.Key, name, csr.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.join[name], r.names = j, append(r.names, name)
		inventory = append(inventory, "- nodeName: "+name+"\n"...)
	}
	write(t, r.c.dir, "inventory.yaml", inventory)
	write(t, r.c.dir, "ek-roots.pem", certificatePEM(ca.Root()))
}

// configure is the configuration of the programs.
func (r *race) configure(t *testing.T) func(config map[string]any) {
	t.Helper()
	return func(config map[string]any) {
		members := config["membership"].(map[string]any)
		members["mode"], members["identityClass"] = "FirstUse", "P-256"
		config["signers"] = map[string]any{"names": []any{r.signer}, "maxLifetime": "1h"}
		config["signer"].(map[string]any)["certificateFile"] = write(t, r.c.dir, "signer.crt", certificatePEM(r.c.ca.cert))
		config["signer"].(map[string]any)["keyFile"] = write(t, r.c.dir, "signer.key", privatePEM(t, r.c.ca.key))
		limits := config["controller"].(map[string]any) // all come with one token
		limits["requesterRate"], limits["requesterBurst"] = 10000, 10000
		limits["acceptedBindings"] = []any{unattested}
	}
}

// start starts the programs that the signer takes, and waits until they are ready.
func (r *race) start(t *testing.T, suffix, controllerProgram, signerProgram string) []*replica {
	t.Helper()
	programs := []*replica{r.c.startController(t, controllerProgram, "controller"+suffix, r.configure(t))}
	if csr.ProviderOf(r.signer) != "" {
		programs = append(programs, r.c.startProgram(t, signerProgram, "signer"+suffix, "signer", signerUser, r.configure(t)))
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
// watch for all, so that it is not what is measured.
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

// filed files a request and waits until it is finished.
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

// each does something for each name, joinsAtOnce at a time, and says what it cost.
func (r *race) each(t *testing.T, names []string, join func(name string) error, whole func()) took {
	t.Helper()
	logged := len(r.c.audit(t))
	worked, began := work(t), time.Now()
	todo := make(chan string)
	var done sync.WaitGroup
	for range joinsAtOnce {
		done.Go(func() {
			for name := range todo {
				if err := join(name); err != nil {
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
	out := took{took: time.Since(began), work: work(t) - worked}
	if t.Failed() {
		t.FailNow()
	}
	writes, reads := cost(r.c.audit(t)[logged:])
	out.writes, out.reads = len(writes), len(reads)
	return out
}

// plain has nodes join without attestation, and clears their requests away.
func (r *race) plain(t *testing.T, nodes int, when string) took {
	t.Helper()
	got := r.each(t, r.names[:nodes], func(name string) error {
		j := r.join[name]
		spec, err := (&csr.Bundle{Request: j.Request}).Spec(csr.SignerKubeAPIServerClientKubelet, j.Expiration)
		if err != nil {
			return err
		}
		o, err := r.file(t, r.unattested, spec)
		if err == nil && len(o.Status.Certificate) == 0 {
			err = fmt.Errorf("no certificate: %+v", o.Status.Conditions)
		}
		return err
	}, func() {})
	t.Logf("%s: %d plain joins in %s, %s of work, %d writes", when, nodes, got.took.Round(time.Millisecond), got.work, got.writes)
	if err := r.c.admin.DeleteAllOf(t.Context(), new(certificatesv1.CertificateSigningRequest)); err != nil {
		t.Fatal(err)
	}
	return got
}

// attested has the nodes join through attestation, each as a machine of its own, until their
// certificates are recorded.
func (r *race) attested(t *testing.T, nodes int, controls *replica) took {
	t.Helper()
	try := &forge.Try{Bench: r.bench, Road: attest.RoadEK, Challenge: func(hello *csr.Request) (*message.Challenge, error) {
		o, err := r.file(t, r.bootstrap, &hello.Spec)
		if err != nil {
			return nil, err
		}
		challenge, err := attest.ChallengeOf(controller.Request(o))
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %s", err, o.Status.Conditions[0].Reason, o.Status.Conditions[0].Message)
		}
		return message.ParseChallenge(challenge)
	}}
	got := r.each(t, r.names, func(name string) (err error) {
		defer forge.Caught(&err)
		bundle, err := try.Prove(name, r.join[name])
		if err != nil {
			return err
		}
		spec, err := bundle.Spec(r.signer, r.join[name].Expiration)
		if err != nil {
			return err
		}
		o, err := r.file(t, r.bootstrap, spec)
		if err != nil {
			return err
		}
		if block, _ := pem.Decode(o.Status.Certificate); block == nil {
			return fmt.Errorf("no certificate: %+v", o.Status.Conditions)
		}
		return nil
	}, func() {
		if csr.ProviderOf(r.signer) != "" { // they are recorded before anybody sees them
			return
		}
		eventually(t, func() error {
			if n := counted(t, controls, "nodeattest_certificates_total")[`result="recorded"`]; int(n) != nodes {
				return fmt.Errorf("%.0f certificates are recorded", n)
			}
			return nil
		})
	})
	t.Logf("%d attested joins in %s, %s of work, %d writes and %d reads", nodes, got.took.Round(time.Millisecond), got.work, got.writes, got.reads)
	var records v1alpha1.AttestedNodeList
	if err := r.c.admin.List(t.Context(), &records); err != nil {
		t.Fatal(err)
	}
	for i := range records.Items {
		if s := &records.Items[i].Spec; s.State != v1alpha1.NodeBound || len(s.Certificates) != 1 || s.Certificates[0].CredentialID == "" {
			t.Errorf("%s: %+v", records.Items[i].Name, s)
		}
	}
	if len(records.Items) != nodes {
		t.Errorf("%d nodes are recorded, want %d", len(records.Items), nodes)
	}
	return got
}
