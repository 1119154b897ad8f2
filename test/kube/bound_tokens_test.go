package kube

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The name of the service, another audience, and the account of its callers' pods.
const (
	serviceAudience = "https://service.example"
	otherAudience   = "https://other.example"
	callersAccount  = "cart"
	itsOwn          = "system:serviceaccount:default:cart on node-1" // the service's answer
)

// reviewed is for how long kube-apiserver remembers a good token, and requestLimit for how long the service
// waits for an answer.
const (
	reviewed     = 10 * time.Second
	requestLimit = 2 * time.Second
)

// A transport serves a handler, and returns a function that calls it once, over a connection of its own:
// that returns HTTP's status of the decision, and the workload ("USER on NODE") or "refused: CHECK".
type transport func(t *testing.T, h *claims.Handler, config *tls.Config) func(client *tls.Config, authorization ...string) (int, string)

// boundTransports are the transports by which each service is called.
var boundTransports = map[string]transport{"HTTP": serveHTTP, "gRPC": serveGRPC}

// A boundService is a service that accepts a pod's token only from its own attested node.
type boundService struct {
	name      string // its account and transport
	account   string // "reviews" or "keys"
	serve     transport
	config    claims.ValidatorConfig
	validator *claims.Validator
	call      func(client *tls.Config, authorization ...string) (int, string)
}

// boundTokens is a cluster with two attested nodes and a pod on the first.
type boundTokens struct {
	*cluster
	operator    *operator
	install     func(name string, device *tpmsim.TPM) *nodeMachine
	node, other tls.Certificate // of node-1 and node-2
	pod         *corev1.Pod
	token       string
	services    []boundService
}

// TestBoundTokens has services on a live cluster take a pod's token from the machine for which it was issued,
// and from no other: by TokenReviews and by keys. The machines have certificates of the shipped controller by
// kubelet-authenticator, and ask for the tokens with them, as a kubelet does.
func TestBoundTokens(t *testing.T) {
	t.Parallel()
	x := &boundTokens{cluster: startJoinable(t)}
	program, ca := buildProgram(t, "kubelet-authenticator"), newCA(t, "")
	swtpm := func() *tpmsim.TPM { return tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true}) }
	x.install = func(name string, device *tpmsim.TPM) *nodeMachine {
		return x.cluster.install(t, program, name, device, nil)
	}
	board, spare := swtpm(), swtpm()
	x.knowMachines(t, board)
	const inventory = "machines:\n- {nodeName: node-1, uid: uid-1}\n- {nodeName: node-2, uid: uid-2}\n"
	controlplane.Write(t, x.dir, "inventory.yaml", []byte(inventory))
	firstUse := func(config map[string]any) { config["membership"].(map[string]any)["mode"] = "FirstUse" }
	r := x.startController(t, buildProgram(t, controller.DefaultName), "controller", firstUse)
	r.isReady(t)
	x.makeConfigMap(t, inventory, firstUse)
	x.operator = x.newOperator(t)

	_, x.node = x.install("node-1", board).credential(t)
	_, x.other = x.install("node-2", swtpm()).credential(t)
	x.makeObjects(t)
	x.serve(t)
	x.call(t, "its own node", 200, itsOwn, x.node)
	t.Run("callers", x.testCallers)
	t.Run("tokens", x.testTokens)
	t.Run("a Secret", x.testSecret)
	t.Run("a machine that is being changed", x.testPending)
	t.Run("a frozen API server", x.testFrozen)
	t.Run("the pod's end", x.testPod)
	t.Run("former machines", func(t *testing.T) { x.testFormer(t, board, spare) })
	t.Run("the Node's end", x.testNode)
	x.checkRights(t, serviceRoles(t))
	r.checkLog(t)
}

// serve starts the services, each kind of validation under an account of its own.
func (x *boundTokens) serve(t *testing.T) {
	for _, role := range serviceRoles(t) {
		x.create(t, role)
	}
	for _, account := range []string{"reviews", "keys"} {
		cluster := x.as(t, account, boundtokens.Options{Timeout: requestLimit})
		config := cluster.ValidatorConfig(serviceAudience)
		config.InsecureAllowReplay = true
		if account == "keys" {
			config.Review, config.Issuers = nil, map[string]jws.KeySet{controlplane.Issuer: x.publishedKeys(t)}
		}
		for name, serve := range boundTransports {
			s := boundService{name: "by " + account + ", " + name, account: account, serve: serve, config: config}
			s.validator, s.call = x.start(t, serve, config, cluster, x.serverTLS(t))
			x.services = append(x.services, s)
		}
	}
}

// as connects with the token of a service's account; "reviews" has that of the shipped example.
func (x *boundTokens) as(t *testing.T, account string, opts boundtokens.Options) *boundtokens.Cluster {
	t.Helper()
	ns := metav1.NamespaceDefault
	if account == "reviews" {
		ns, account = "boundtokens-example", "boundtokens-example"
	}
	cluster, err := boundtokens.New(x.withToken(t, x.serviceAccountToken(t, ns, account)), opts)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// start starts a service.
func (x *boundTokens) start(t *testing.T, serve transport, config claims.ValidatorConfig, cluster *boundtokens.Cluster, server *tls.Config) (
	*claims.Validator, func(*tls.Config, ...string) (int, string),
) {
	t.Helper()
	validator, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	opts := cluster.HandlerOptions()
	opts.Observe = func(err error, _ time.Duration) { t.Logf("decided: %v", err) }
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		fmt.Fprintf(w, "%s on %s", who.Result.Username(), who.Node.Name)
	}), opts)
	if err != nil {
		t.Fatal(err)
	}
	return validator, serve(t, handler, server)
}

// serveHTTP is a transport.
func serveHTTP(t *testing.T, h *claims.Handler, config *tls.Config) func(client *tls.Config, authorization ...string) (int, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.TLS = config
	server.StartTLS()
	t.Cleanup(server.Close)
	return func(client *tls.Config, authorization ...string) (int, string) {
		t.Helper()
		caller := &http.Client{Transport: &http.Transport{TLSClientConfig: client, DisableKeepAlives: true}, Timeout: 30 * time.Second}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header["Authorization"] = authorization
		response, err := caller.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, strings.TrimSpace(string(text))
	}
}

// serverTLS asks for the nodes' certificates, and makes no session tickets.
func (x *boundTokens) serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	own, err := tls.X509KeyPair(x.ca.Issue(t, pkix.Name{CommonName: "service"}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: x.roots(), SessionTicketsDisabled: true}
}

func (x *boundTokens) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(x.ca.Cert)
	return pool
}

// from is the client of a machine with these certificates.
func (x *boundTokens) from(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: x.roots(), Certificates: certificates}
}

// call presents the pod's token to each service, from a machine with these certificates. want is how the
// answer begins.
func (x *boundTokens) call(t *testing.T, what string, status int, want string, certificates ...tls.Certificate) {
	t.Helper()
	for _, s := range x.services {
		if got, text := s.call(x.from(certificates...), "Bearer "+x.token); got != status || text != want {
			t.Errorf("%s, %s: got %d %s, want %d %s", what, s.name, got, text, status, want)
		}
	}
}

// makeObjects makes the Nodes, as kubelets do, the account of the callers and a pod, and has the node ask for
// the pod's token.
func (x *boundTokens) makeObjects(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{ProviderID: "sim://node-1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: callersAccount}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "cart"}},
	} {
		if err := x.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	x.placePod(t)
	x.token = x.asked(t, x.node)
}

// placePod makes the pod on node-1, which has volumes with tokens for both audiences.
func (x *boundTokens) placePod(t *testing.T) {
	t.Helper()
	x.pod = x.makePod(t, "cart-0", "node-1", callersAccount, serviceAudience, otherAudience)
}

// asked has a node ask for the pod's token with its own certificate.
func (x *boundTokens) asked(t *testing.T, node tls.Certificate) (token string) {
	t.Helper()
	as := x.withCertificate(t, node)
	eventually(t, func() (err error) { // admission learns of a pod a moment later
		token, err = x.ask(t, as, "Pod", x.pod, serviceAudience)
		return err
	})
	return token
}

// ask asks for a token that is bound to an object.
func (x *boundTokens) ask(t *testing.T, as client.Client, kind string, bound client.Object, audience string) (string, error) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: callersAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: bound.GetName(), UID: bound.GetUID()}}}
	err := as.SubResource("token").Create(t.Context(), account, request)
	return request.Status.Token, err
}

// publishedKeys are the keys that the API server publishes, as it has them now.
func (x *boundTokens) publishedKeys(t *testing.T) jws.KeySet {
	t.Helper()
	connection := x.from()
	admin := x.user(t, "admin", "system:masters")
	own, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	connection.Certificates = []tls.Certificate{own}
	keys, err := jws.NewRemoteKeySet(jws.RemoteConfig{JWKSURL: x.url + "/openid/v1/jwks", Client: &http.Client{Transport: &http.Transport{TLSClientConfig: connection}}})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// testCallers presents the token from where it must not work.
func (x *boundTokens) testCallers(t *testing.T) {
	plain, err := tls.X509KeyPair(x.ca.Issue(t, pkix.Name{CommonName: "system:node:node-1", Organization: []string{"system:nodes"}}, x509.ExtKeyUsageClientAuth))
	if err != nil {
		t.Fatal(err)
	}
	const noCertificate = "refused: node-certificate"
	x.call(t, "another attested node", 401, "refused: node-name", x.other)
	x.call(t, "no certificate", 403, noCertificate)
	x.call(t, "a plain certificate of the same CA", 403, noCertificate, plain)

	x.changeRecord(t, "node-2", func(s *v1alpha1.AttestedNodeSpec) { s.Certificates = nil })
	x.call(t, "a certificate that is not recorded any more", 403, noCertificate, x.other)
	for _, s := range x.services {
		for _, authorization := range [][]string{nil, {x.token}, {"Bearer " + x.token, "Bearer " + x.token}} {
			if status, text := s.call(x.from(x.node), authorization...); status != 401 || text != "refused: bearer-token" {
				t.Errorf("%d values, %s: got %d %s", len(authorization), s.name, status, text)
			}
		}
	}
	cluster := x.as(t, "reviews", boundtokens.Options{})
	config := cluster.ValidatorConfig(serviceAudience)
	config.InsecureAllowReplay = true
	for name, serve := range boundTransports {
		server := x.serverTLS(t)
		server.SessionTicketsDisabled = false
		_, call := x.start(t, serve, config, cluster, server)
		from := x.from(x.node)
		from.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		first, _ := call(from, "Bearer "+x.token)
		again, text := call(from, "Bearer "+x.token)
		if first != 200 || again != 403 || text != noCertificate {
			t.Errorf("%s: got %d, and %d %s in a resumed session", name, first, again, text)
		}
	}
}

// changeRecord changes a node's record as no program does.
func (x *boundTokens) changeRecord(t *testing.T, node string, change func(s *v1alpha1.AttestedNodeSpec)) {
	t.Helper()
	eventually(t, func() error {
		var record v1alpha1.AttestedNode
		if err := x.admin.Get(t.Context(), client.ObjectKey{Name: node}, &record); err != nil {
			t.Fatal(err)
		}
		change(&record.Spec)
		return x.admin.Update(t.Context(), &record)
	})
}

// testTokens presents other tokens from the pod's own node.
func (x *boundTokens) testTokens(t *testing.T) {
	other, err := x.ask(t, x.withCertificate(t, x.node), "Pod", x.pod, otherAudience)
	if err != nil {
		t.Fatal(err)
	}
	good := x.token
	defer func() { x.token = good }()
	x.token = other
	x.call(t, "another audience", 401, "refused: audience", x.node)
	begin := strings.LastIndex(good, ".") + 1
	x.token = good[:begin] + map[bool]string{true: "B", false: "A"}[good[begin] == 'A'] + good[begin+1:]
	x.callEach(t, "another signature", 401, "refused: token-review", "refused: token-signature", x.node)

	x.token = good
	now := *x
	now.services = nil
	for _, s := range x.services {
		config := s.config
		config.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		s.validator, s.call = x.start(t, s.serve, config, x.as(t, s.account, boundtokens.Options{}), x.serverTLS(t))
		now.services = append(now.services, s)
	}
	now.call(t, "a token past its end", 401, "refused: expired", x.node)
	x.call(t, "the same token", 200, itsOwn, x.node)
}

// callEach is call where the ways to validate have different checks.
func (x *boundTokens) callEach(t *testing.T, what string, status int, byReview, byKeys string, certificates ...tls.Certificate) {
	t.Helper()
	for account, want := range map[string]string{"reviews": byReview, "keys": byKeys} {
		of := *x
		of.services = slices.DeleteFunc(slices.Clone(x.services), func(s boundService) bool { return s.account != account })
		of.call(t, what, status, want, certificates...)
	}
}

// testSecret presents a token that is bound to a Secret, which is read only by an account that may do so.
func (x *boundTokens) testSecret(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "cart"}}
	if err := x.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	token, err := x.ask(t, x.admin, "Secret", secret, serviceAudience)
	if err != nil {
		t.Fatal(err)
	}
	for account, want := range map[string]error{"keys": claims.Check("secret-gone"), "secrets": nil} {
		cluster := x.as(t, account, boundtokens.Options{Secrets: account == "secrets"})
		config := cluster.ValidatorConfig(serviceAudience)
		config.Review, config.Issuers, config.InsecureAllowReplay = nil, map[string]jws.KeySet{controlplane.Issuer: x.publishedKeys(t)}, true
		validator, err := claims.NewValidator(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := validator.Validate(t.Context(), token); !errors.Is(err, want) {
			t.Errorf("by %s: got %v, want %v", account, err, want)
		}
	}
	good := x.token
	x.token = token
	x.callEach(t, "a token of a Secret", 401, "refused: node-claim", "refused: secret-gone", x.node)
	x.token = good
	pod := x.as(t, "secrets", boundtokens.Options{}) // which needs the rights of one with keys, too
	for resource, name := range map[string]string{"pods": x.pod.Name, "serviceaccounts": callersAccount} {
		if _, err := pod.Get(t.Context(), resource, metav1.NamespaceDefault, name); err != nil {
			t.Error(err)
		}
	}
}

// testPending has an operator's change of the machine under way.
func (x *boundTokens) testPending(t *testing.T) {
	pending := &v1alpha1.PendingChange{Machine: "ek:sha256:00", Deadline: metav1.NewTime(time.Now().Add(time.Minute))}
	x.changeRecord(t, "node-1", func(s *v1alpha1.AttestedNodeSpec) { s.Pending = pending })
	x.call(t, "while the machine is being changed", 503, "refused: retry", x.node)
	x.changeRecord(t, "node-1", func(s *v1alpha1.AttestedNodeSpec) { s.Pending = nil })
	x.call(t, "afterwards", 200, itsOwn, x.node)
}

// testFrozen stops kube-apiserver: no service accepts anything until it goes on.
func (x *boundTokens) testFrozen(t *testing.T) {
	signal := func(s syscall.Signal) {
		if err := x.server.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	x.call(t, "just before", 200, itsOwn, x.node)
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	began := time.Now()
	x.call(t, "a frozen API server", 503, "refused: retry", x.node)
	t.Logf("%d calls of a frozen API server were answered with 503 in %s", len(x.services), time.Since(began).Round(time.Millisecond))
	if took := time.Since(began) / time.Duration(len(x.services)); took > requestLimit+time.Second {
		t.Errorf("a call took %s, want at most %s", took, requestLimit)
	}
	signal(syscall.SIGCONT)
	for _, s := range x.services {
		eventually(t, func() error {
			if status, text := s.call(x.from(x.node), "Bearer "+x.token); status != 200 {
				return fmt.Errorf("%s, when the API server goes on: %d %s", s.name, status, text)
			}
			return nil
		})
	}
}

// testPod ends the pod, and makes another one of its name. By keys its token ends at once; kube-apiserver
// remembers a token that it has reviewed.
func (x *boundTokens) testPod(t *testing.T) {
	x.token = x.asked(t, x.node) // one that kube-apiserver does not remember
	x.call(t, "its own node", 200, itsOwn, x.node)
	if err := x.admin.Delete(t.Context(), x.pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	wants := map[string]string{"reviews": "refused: token-review", "keys": "refused: pod-gone"}
	for _, s := range slices.Backward(x.services) { // by keys first
		eventually(t, func() error {
			status, text := s.call(x.from(x.node), "Bearer "+x.token)
			if status != 401 && s.account == "keys" {
				t.Errorf("%s: got %d %s", s.name, status, text)
			}
			if status == 401 && text == wants[s.account] {
				return nil
			}
			return fmt.Errorf("%s, %s after the pod's end: %d %s", s.name, time.Since(began), status, text)
		})
	}
	age := time.Since(began)
	t.Logf("kube-apiserver's reviews accepted the token of a pod that was gone for at most %s", age.Round(time.Millisecond))
	if age > reviewed+2*time.Second {
		t.Errorf("a token was accepted for %s after its pod's end, want at most %s", age, reviewed)
	}
	x.placePod(t)
	x.callEach(t, "the pod was made again", 401, "refused: token-review", "refused: pod-uid", x.node)
	x.token = x.asked(t, x.node)
	x.call(t, "a token of the new pod", 200, itsOwn, x.node)
}

// testFormer has the name of the node go to another machine twice, while its Node is kept. The machine that
// had the name presents the token that the present one asked for.
func (x *boundTokens) testFormer(t *testing.T, board, spare *tpmsim.TPM) {
	const noCertificate = "refused: node-certificate"
	first, machine, spareMachine := x.node, string(identityOf(t, board)), string(identityOf(t, spare))
	x.operator.run(t, "rebind node-1 --machine "+spareMachine+" --replaces "+machine, "node node-1 is machine "+spareMachine)
	x.call(t, "a machine that was replaced", 403, noCertificate, first)
	_, x.node = x.install("node-1", spare).credential(t)
	x.recorded(t, "node-1", x.node.Leaf)
	x.token = x.asked(t, x.node)
	x.call(t, "the machine that replaced it", 200, itsOwn, x.node)
	x.call(t, "a machine that was replaced, with its certificate", 403, noCertificate, first)
	x.former(t, claims.AttestedNode{Name: "node-1", Machine: machine}, "registered-machine")
	x.former(t, claims.AttestedNode{Name: "node-1"}, "facts")

	second := x.node
	x.operator.run(t, "release node-1 --machine "+spareMachine, "node node-1 rests until")
	x.call(t, "a machine that was released", 403, noCertificate, second)
	x.former(t, claims.AttestedNode{Name: "node-1", Machine: spareMachine}, "machine-unregistered")
	x.install("node-1", spare).refused(t)
	x.operator.run(t, "approve node-1 --machine "+spareMachine, "node node-1 is machine "+spareMachine)
	x.call(t, "a machine that was approved anew, with the certificate of before", 403, noCertificate, second)

	x.operator.run(t, "release node-1 --machine "+spareMachine, "node node-1 rests until")
	if err := x.admin.Delete(t.Context(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}); err != nil { // its rest ends, its certificates do not
		t.Fatal(err)
	}
	x.knows(t, "machines:\n- {nodeName: node-1, uid: uid-3}\n")
	again := x.install("node-1", board)
	again.refused(t)
	x.operator.run(t, "approve node-1 --existing-node --machine "+machine, "node node-1 is machine "+machine)
	_, x.node = again.credential(t)
	x.recorded(t, "node-1", x.node.Leaf)
	x.token = x.asked(t, x.node)
	x.call(t, "the machine that was approved", 200, itsOwn, x.node)
	x.call(t, "a machine that was released, with its certificate", 403, noCertificate, second)
	x.call(t, "the certificate that the machine had before", 403, noCertificate, first)
	x.former(t, claims.AttestedNode{Name: "node-1", Machine: spareMachine}, "registered-machine")
	x.former(t, claims.AttestedNode{Name: "node-1", MachineUID: "uid-1"}, "registered-machine-uid")
	x.former(t, claims.AttestedNode{Name: "node-1", ProviderID: "sim://former"}, "certificate-provider-id")
	x.former(t, claims.AttestedNode{Name: "node-1"}, "facts")
}

// knows changes the inventory, for the controller and for the operator.
func (x *boundTokens) knows(t *testing.T, inventory string) {
	t.Helper()
	controlplane.Write(t, x.dir, "inventory.yaml", []byte(inventory))
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "node-attestation"}}
	if err := x.admin.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Fatal(err)
	}
	m.Data["inventory.yaml"] = inventory
	if err := x.admin.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// former presents the token from a machine of which no more is known than that, as from a certificate
// whose record was read before the change.
func (x *boundTokens) former(t *testing.T, node claims.AttestedNode, want claims.Check) {
	t.Helper()
	for _, s := range x.services {
		if _, _, err := s.validator.ValidateOnNode(t.Context(), x.token, &node); !errors.Is(err, want) {
			t.Errorf("%+v, %s: got %v, want %s", node, s.name, err, string(want))
		}
	}
}

// testNode deletes the Node, and makes it again: tokens for the former one end, and a certificate whose
// record names it.
func (x *boundTokens) testNode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	if err := x.admin.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	uid := string(node.UID)
	if err := x.admin.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	x.call(t, "the Node is gone", 401, "refused: node-gone", x.node)
	node.ResourceVersion, node.UID = "", ""
	if err := x.admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	x.call(t, "the Node was made again", 401, "refused: node-uid", x.node)
	x.token = x.asked(t, x.node)
	x.call(t, "a token for the new Node, of the same machine", 200, itsOwn, x.node)
	x.former(t, claims.AttestedNode{Name: "node-1", UID: uid}, "attested-uid")
}

// serviceRoles are the accounts of services with their rights: to validate by TokenReviews, as shipped, by keys,
// and by keys with tokens of Secrets.
func serviceRoles(t *testing.T) [][]byte {
	t.Helper()
	right := func(verb, group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}}
	}
	nodes, records := right("get", "", "nodes"), right("get", v1alpha1.Group, "attestednodes")
	pods, accounts := right("get", "", "pods"), right("get", "", "serviceaccounts")
	all := manifests(t, "boundtokens/rbac.yaml")
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"keys":    {nodes, records, pods, accounts},
		"secrets": {right("get", "", "secrets"), pods, accounts},
	} {
		meta := metav1.ObjectMeta{Name: name}
		for _, o := range []any{
			&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{Kind: "ServiceAccount", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}},
			&rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{Kind: "ClusterRole", APIVersion: rbacv1.SchemeGroupVersion.String()}, ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRoleBinding{TypeMeta: metav1.TypeMeta{Kind: "ClusterRoleBinding", APIVersion: rbacv1.SchemeGroupVersion.String()}, ObjectMeta: meta,
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}}},
		} {
			text, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
	}
	return all
}
