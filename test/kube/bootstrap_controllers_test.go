package kube

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The accounts that write cluster-info: ours, and that of Kubernetes' bootstrap signer.
const (
	bootstrapSigner = "system:serviceaccount:" + namespace + ":bootstrap-signer"
	builtInSigner   = "system:serviceaccount:kube-system:bootstrap-signer"
)

// A bootstrapCluster is a cluster with program bootstrap-controller: two signers, of which one leads and
// publishes too, and a cleaner.
type bootstrapCluster struct {
	*cluster
	program string
	signers map[string]*replica
	cleaner *replica
	// secrets is the number of Secrets of the load, and quiet how long nothing may be written at rest.
	secrets int
	quiet   time.Duration
}

// TestBootstrapControllers: the program does what Kubernetes' own two controllers do, without them and
// next to them.
func TestBootstrapControllers(t *testing.T) {
	t.Parallel()
	b := &bootstrapCluster{program: buildProgram(t, "bootstrap-controller"), secrets: 100, quiet: 10 * time.Second, signers: map[string]*replica{}}
	if os.Getenv(longVar) != "" {
		b.secrets, b.quiet = 1000, time.Minute
	}
	b.cluster = startCluster(t, func(*cluster) []string { return []string{"--anonymous-auth=true"} })
	b.namespaces(t)
	eventually(t, func() error {
		return b.admin.Get(t.Context(), client.ObjectKey{Name: bootstraptoken.ClusterInfoNamespace}, new(corev1.Namespace))
	})
	for _, file := range []string{"rbac.yaml", "bootstrap/rbac.yaml", "bootstrap/admission.yaml", "bootstrap/cluster-info.yaml"} {
		b.apply(t, file)
	}
	builtIn := b.startSigner(t) // neither the bootstrap signer nor the token cleaner
	controlplane.Write(t, b.dir, "served-ca.crt", controlplane.CertificatePEM(b.ca.Cert))
	for _, name := range []string{"signer-1", "signer-2"} {
		b.signers[name] = b.startBootstrap(t, name, "bootstrap-signer", fmt.Sprintf("controllers: [signer, publisher]\npublisher: {server: %q, caFile: %s}\n", b.url, filepath.Join(b.dir, "served-ca.crt")))
	}
	b.cleaner = b.startBootstrap(t, "cleaner", "bootstrap-cleaner", "controllers: [cleaner]\n")
	for _, r := range []*replica{b.signers["signer-1"], b.signers["signer-2"], b.cleaner} {
		r.isReady(t)
	}
	t.Run("kubeadm", func(t *testing.T) { b.testKubeadm(t) })
	t.Run("a Secret that cannot be read", func(t *testing.T) { b.testUnreadable(t) })
	t.Run("an empty CA file", func(t *testing.T) { b.testEmptyCA(t) })
	t.Run("many changes, and kill -9", func(t *testing.T) { b.testKilled(t) })
	b.checkRights(t, manifests(t, "bootstrap/rbac.yaml"))
	t.Run("the built-in controllers", func(t *testing.T) {
		builtIn.stop(t)
		b.testBuiltIn(t)
	})
	t.Run("a stolen service account", func(t *testing.T) { b.testStolenCleaner(t) })
	for _, r := range []*replica{b.signers["signer-1"], b.signers["signer-2"], b.cleaner} {
		r.checkLog(t)
	}
}

// startBootstrap starts a replica as its service account.
func (b *bootstrapCluster) startBootstrap(t *testing.T, name, account, config string) *replica {
	t.Helper()
	ports := controlplane.FreePorts(t, 2)
	r := &replica{metrics: "http://127.0.0.1:" + ports[0] + "/metrics", health: "http://127.0.0.1:" + ports[1]}
	path := controlplane.Write(t, b.dir, name+".yaml", fmt.Appendf(nil, "apiVersion: config.nodeattest.github.io/v1alpha1\nkind: BootstrapController\n"+
		"metricsAddress: 127.0.0.1:%s\nhealthAddress: 127.0.0.1:%s\n%s", ports[0], ports[1], config))
	r.process = startAs(t, name, b.program, b.dir, "--config="+path,
		"--kubeconfig="+b.writeKubeconfig(t, name+".kubeconfig", &clientcmdapi.AuthInfo{Token: b.serviceAccountToken(t, namespace, account)}))
	return r
}

// store makes the Secret of a token that lives for a while.
func (b *bootstrapCluster) store(t *testing.T, ttl time.Duration) *bootstraptoken.Secret {
	t.Helper()
	made, err := bootstraptoken.Create(bootstraptoken.CreateOptions{Description: "for a test", TTL: ttl}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o, err := made.Object()
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, Type: corev1.SecretType(o.Type), Data: o.Data.Reveal()}
	if err := b.admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return made
}

// clusterInfo reads the ConfigMap.
func (b *bootstrapCluster) clusterInfo(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	object := new(corev1.ConfigMap)
	if err := b.admin.Get(t.Context(), client.ObjectKey{Namespace: bootstraptoken.ClusterInfoNamespace, Name: bootstraptoken.ClusterInfoName}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// exact waits until cluster-info is what bootstraptoken.Sign makes of the Secrets, and returns how long
// that took and how many signatures there are.
func (b *bootstrapCluster) exact(t *testing.T) (took time.Duration, signatures int) {
	t.Helper()
	began := time.Now()
	eventually(t, func() error {
		var list corev1.SecretList
		if err := b.admin.List(t.Context(), &list, client.InNamespace(bootstraptoken.Namespace), client.MatchingFields{"type": bootstraptoken.SecretType}); err != nil {
			return err
		}
		objects := make([]*bootstraptoken.Object, 0, len(list.Items))
		for i := range list.Items {
			s := &list.Items[i]
			objects = append(objects, &bootstraptoken.Object{Namespace: s.Namespace, Name: s.Name, Type: string(s.Type), Data: secret.New(s.Data)})
		}
		data := b.clusterInfo(t).Data
		signing, err := bootstraptoken.Sign(data, objects, time.Now())
		if err != nil || signing.Changed {
			return fmt.Errorf("cluster-info is not what Sign gives for %d Secrets: %w", len(objects), errors.Join(err, errNotYet))
		}
		signatures = 0
		for key := range data {
			if strings.HasPrefix(key, "jws-kubeconfig-") {
				signatures++
			}
		}
		return nil
	})
	return time.Since(began), signatures
}

// testKubeadm has the real kubeadm discover the cluster with a token, and list it. The token's Secret and
// its signature go at its end.
func (b *bootstrapCluster) testKubeadm(t *testing.T) {
	token, short := b.store(t, time.Hour), b.store(t, 20*time.Second)
	b.exact(t)
	for _, s := range []*bootstraptoken.Secret{token, short} {
		if b.clusterInfo(t).Data["jws-kubeconfig-"+s.Token.ID()] == "" {
			t.Errorf("no signature by %s", s.Token)
		}
	}
	admin := b.kubeconfig(t, "kubeadm.kubeconfig", "admin", "system:masters")
	version := strings.TrimSpace(b.kubeadm(t, "version", "-o", "short"))
	initConfig := controlplane.Write(t, b.dir, "init.yaml", fmt.Appendf(nil, kubeadmInit, version, b.address(), ""))
	b.kubeadm(t, "init", "phase", "upload-config", "all", "--config", initConfig, "--kubeconfig", admin)
	info := &bootstraptoken.ClusterInfo{Server: b.url}
	info.CAs = append(info.CAs, b.ca.Cert)
	join := controlplane.Write(t, b.dir, "join.yaml", fmt.Appendf(nil, `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: %q, token: %q, caCertHashes: [%q]}
nodeRegistration: {name: node-1, criSocket: "unix:///run/none.sock", ignorePreflightErrors: [all]}
`, b.address(), token.Token.Reveal(), info.Pins()[0]))
	out := b.kubeadm(t, "join", "phase", "preflight", "-v=1", "--config", join)
	if want := "Cluster info signature and contents are valid and TLS certificate validates against pinned roots"; !strings.Contains(out, want) {
		t.Errorf("kubeadm does not say %q:\n%s", want, strings.ReplaceAll(out, token.Token.Reveal(), token.Token.String()))
	}
	if out := b.kubeadm(t, "token", "list", "--kubeconfig", admin); !strings.Contains(out, token.Token.Reveal()) || !strings.Contains(out, "for a test") {
		t.Errorf("kubeadm token list does not list the token: %q", strings.ReplaceAll(out, token.Token.Reveal(), token.Token.String()))
	}
	b.gone(t, short)
	before := b.clusterInfo(t).Data
	apply := exec.CommandContext(t.Context(), filepath.Join(controlplane.Binaries(t), "kubectl"), "--kubeconfig="+admin, "apply", "-f", filepath.Join("..", "..", "kube", "deploy", "bootstrap", "cluster-info.yaml"))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := b.clusterInfo(t).Data; !maps.Equal(after, before) || len(after) < 2 {
		t.Errorf("the component, applied again, leaves %d keys of %d", len(after), len(before))
	}
}

// gone waits until a token's Secret and signature are gone, and not before its end.
func (b *bootstrapCluster) gone(t *testing.T, s *bootstraptoken.Secret) {
	t.Helper()
	key := client.ObjectKey{Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(s.Token.ID())}
	eventually(t, func() error {
		if err := b.admin.Get(t.Context(), key, new(corev1.Secret)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the expired Secret is there: %w", errors.Join(err, errNotYet))
		}
		if b.clusterInfo(t).Data["jws-kubeconfig-"+s.Token.ID()] != "" {
			return fmt.Errorf("the expired token signs: %w", errNotYet)
		}
		return nil
	})
	late := time.Since(s.Expiration)
	t.Logf("Secret and signature gone %s after the token's end", late.Round(10*time.Millisecond))
	if late < 0 {
		t.Error("a token that had not expired was deleted")
	}
}

// kubeadm runs kubeadm on this machine, which changes nothing here.
func (b *bootstrapCluster) kubeadm(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(controlplane.Binaries(t), "kubeadm"), args...)
	cmd.Env = append(cmd.Environ(), "HOME="+b.dir, "KUBECONFIG=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("kubeadm %s: %v\n%s", strings.Join(args[:3], " "), err, out)
	}
	return string(out)
}

// told waits until an Event about an object was told a number of times.
func (b *bootstrapCluster) told(t *testing.T, namespace, name, note string, times int32) {
	t.Helper()
	eventually(t, func() error {
		var list eventsv1.EventList
		if err := b.admin.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			count := int32(1)
			if e.Series != nil {
				count = e.Series.Count
			}
			if e.Regarding.Name == name && strings.Contains(e.Note, note) && count >= times {
				t.Logf("Event %d times: %s", count, e.Note)
				return nil
			}
		}
		return fmt.Errorf("no Event about %s, %d times, of %d: %w", name, times, len(list.Items), errNotYet)
	})
}

// testUnreadable: a Secret whose expiration cannot be read stays, and a person hears of it: by both
// programs, and again when it is unreadable again.
func (b *bootstrapCluster) testUnreadable(t *testing.T) {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: "bootstrap-token-ffffff"}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "ffffff", "token-secret": tokenSecret, "usage-bootstrap-signing": "true", "expiration": "tomorrow"}}
	if err := b.admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	refused := func(want float64) {
		t.Helper()
		eventually(t, func() error {
			if got := counted(t, b.cleaner, "nodeattest_bootstrap_refused")[""]; got != want {
				return fmt.Errorf("%v refused Secrets are counted, want %v", got, want)
			}
			return nil
		})
	}
	refused(1)
	b.told(t, bootstraptoken.Namespace, object.Name, "bootstrap-token-expiration", 1)
	for want, expiration := range []string{"2099-01-01T00:00:00Z", "tomorrow"} {
		if err := b.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		object.Data["expiration"] = []byte(expiration)
		if err := b.admin.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		refused(float64(want))
		b.exact(t)
	}
	b.told(t, bootstraptoken.Namespace, object.Name, "bootstrap-token-expiration", 2)
	if err := b.admin.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	refused(0)
}

// testEmptyCA: while the CA file is empty, the document stays, and a person hears of it.
func (b *bootstrapCluster) testEmptyCA(t *testing.T) {
	before := b.clusterInfo(t)
	for times := range int32(2) {
		controlplane.Write(t, b.dir, "served-ca.crt", nil)
		b.told(t, bootstraptoken.ClusterInfoNamespace, bootstraptoken.ClusterInfoName, "the published kubeconfig stays", times+1)
		controlplane.Write(t, b.dir, "served-ca.crt", controlplane.CertificatePEM(b.ca.Cert))
		if times == 0 {
			time.Sleep(12 * time.Second) // it reads the file every 10 seconds
		}
	}
	if after := b.clusterInfo(t); after.ResourceVersion != before.ResourceVersion {
		t.Error("cluster-info was written")
	}
}

// changing changes Secrets of tokens while f runs, and returns how many changes there were: each Secret is
// made, given another secret, another use or another end, made unfit, and deleted.
func (b *bootstrapCluster) changing(t *testing.T, f func()) int {
	t.Helper()
	var changes atomic.Int64
	var done sync.WaitGroup
	end := make(chan struct{})
	const workers = 4
	for w := range workers {
		done.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for {
				select {
				case <-end:
					return
				case <-time.After(40 * time.Millisecond): // about 100 changes a second in all
				}
				if err := b.changeOne(t, random, fmt.Sprintf("%06d", workers*random.IntN(b.secrets/workers)+w)); err != nil {
					t.Error(err)
					return
				}
				changes.Add(1)
			}
		})
	}
	f()
	close(end)
	done.Wait()
	return int(changes.Load())
}

func (b *bootstrapCluster) changeOne(t *testing.T, random *rand.Rand, id string) error {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(id)}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": tokenSecret, "usage-bootstrap-signing": "true", "usage-bootstrap-authentication": "true"}}
	what := random.IntN(8)
	switch what {
	case 0:
		return client.IgnoreNotFound(b.admin.Delete(t.Context(), object))
	case 1:
		delete(object.StringData, "usage-bootstrap-signing")
	case 2:
		object.StringData["expiration"] = time.Now().Add(3 * time.Second).UTC().Format(time.RFC3339)
	case 3:
		object.StringData["auth-extra-groups"] = "not a group of bootstrappers" // only Kubernetes signs with it
	default:
		object.StringData["token-secret"] = fmt.Sprintf("%s%010d", tokenSecret[:6], random.IntN(1e9))
	}
	err := b.admin.Update(t.Context(), object)
	if apierrors.IsNotFound(err) {
		return b.admin.Create(t.Context(), object)
	}
	return err
}

// written counts an account's writes of cluster-info in a part of the audit log.
func written(log []audited, user string) (writes, conflicts int) {
	for i := range log {
		a := &log[i]
		if (user == "" || a.User.Username == user) && a.ObjectRef.Resource == "configmaps" && a.ObjectRef.Name == bootstraptoken.ClusterInfoName && a.Verb != "get" && a.Verb != "list" && a.Verb != "watch" {
			if a.ResponseStatus.Code == http.StatusConflict {
				conflicts++
			} else {
				writes++
			}
		}
	}
	return writes, conflicts
}

// load changes Secrets while f runs, and logs the writes of an account.
func (b *bootstrapCluster) load(t *testing.T, user string, f func()) {
	t.Helper()
	before := len(b.audit(t))
	changes := b.changing(t, f)
	took, signatures := b.exact(t)
	writes, conflicts := written(b.audit(t)[before:], user)
	t.Logf("%s: %d changes of %d Secrets, %d writes of cluster-info (%.3f a change) and %d conflicts; exact with %d signatures %s after the last change",
		user, changes, b.secrets, writes, float64(writes)/float64(changes), conflicts, signatures, took.Round(10*time.Millisecond))
	if writes == 0 || signatures < b.secrets/10 {
		t.Errorf("%d writes and %d signatures", writes, signatures)
	}
}

// testKilled kills the leading signer while Secrets change: another one goes on, and in the end each
// signature is there.
func (b *bootstrapCluster) testKilled(t *testing.T) {
	kills := 2
	if os.Getenv(longVar) != "" {
		kills = 6
	}
	b.load(t, bootstrapSigner, func() {
		for range kills {
			for name, r := range b.signers {
				if !strings.Contains(r.text(t), "Successfully acquired lease") {
					continue
				}
				r.kill(t)
				if err := os.Truncate(r.log, 0); err != nil { // for the next lease
					t.Fatal(err)
				}
				before := b.clusterInfo(t).ResourceVersion
				eventually(t, func() error {
					if b.clusterInfo(t).ResourceVersion == before {
						return fmt.Errorf("no replica signs since %s was killed: %w", name, errNotYet)
					}
					return nil
				})
				if err := r.launch(); err != nil {
					t.Fatal(err)
				}
				break
			}
			time.Sleep(5 * time.Second)
		}
	})
	for _, r := range b.signers {
		r.isReady(t)
	}
}

// testBuiltIn runs Kubernetes' own two controllers, first without ours and then with them: both together
// come to rest.
func (b *bootstrapCluster) testBuiltIn(t *testing.T) {
	for _, r := range []*replica{b.signers["signer-1"], b.signers["signer-2"], b.cleaner} {
		if status := r.stop(t); status != 0 {
			t.Errorf("%s ends with status %d", r.name, status)
		}
	}
	b.startSigner(t, "--controllers=bootstrap-signer-controller,token-cleaner-controller")
	b.store(t, time.Hour)
	b.exact(t)
	b.load(t, builtInSigner, func() { time.Sleep(b.quiet) })
	for _, r := range []*replica{b.signers["signer-1"], b.signers["signer-2"], b.cleaner} {
		if err := r.launch(); err != nil {
			t.Fatal(err)
		}
		r.isReady(t)
	}
	b.load(t, bootstrapSigner, func() { time.Sleep(b.quiet) })
	short := b.store(t, 5*time.Second)
	b.gone(t, short)
	time.Sleep(5 * time.Second) // for the tokens with an end of the load
	before := len(b.audit(t))
	time.Sleep(b.quiet)
	writes, conflicts := written(b.audit(t)[before:], "")
	t.Logf("both at rest for %s: %d writes of cluster-info, %d conflicts", b.quiet, writes, conflicts)
	if writes+conflicts != 0 {
		t.Error("they do not come to rest")
	}
	b.exact(t)
}

// testStolenCleaner: with the cleaner's token, no other Secret of the namespace can be deleted.
func (b *bootstrapCluster) testStolenCleaner(t *testing.T) {
	thief := b.client(t, b.withToken(t, b.serviceAccountToken(t, namespace, "bootstrap-cleaner")))
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: "etcd-client"}, Type: corev1.SecretTypeOpaque}
	if err := b.admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	err := thief.Delete(t.Context(), object)
	if err == nil || !strings.Contains(err.Error(), "the cleaner of bootstrap tokens deletes no other Secret") {
		t.Errorf("got %v", err)
	}
}
