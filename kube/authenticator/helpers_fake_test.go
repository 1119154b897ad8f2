package authenticator

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

const (
	testNode  = "node-1"
	testToken = "attest.0123456789abcdef"
	// testProviderID is the one that the control plane vouches for.
	testProviderID = "test://node-1"
)

// testAddress is the node's address.
func testAddress() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 1}) }

// fakeAPI is an API server with a control plane: it authenticates, keeps requests, lets them
// be watched, and decides about them as the real ones do, with the real verifier.
type fakeAPI struct {
	t        testing.TB
	server   *httptest.Server
	platform *attesttest.Platform
	verifier *attest.Verifier
	caKey    *ecdsa.PrivateKey
	caCert   *x509.Certificate

	mu       sync.Mutex
	changed  *sync.Cond
	ahead    atomic.Int64 // by which now is ahead of the time of day
	objects  map[string]*certificatesv1.CertificateSigningRequest
	version  int
	log      []string // verb and user
	lifetime time.Duration
	// What goes wrong.
	down     bool                                                   // every call is answered 503
	away     bool                                                   // no request is decided
	decide   func(o *certificatesv1.CertificateSigningRequest) bool // true: it is decided
	cutWatch int                                                    // so many watches end before anything happens
	sign     func(template *x509.Certificate)                       // before it is signed
	noToken  bool                                                   // the bootstrap token is gone
	unknown  *x509.Certificate                                      // gets 401
	review   func(w http.ResponseWriter)                            // instead of a review
}

func newFakeAPI(t testing.TB) *fakeAPI {
	t.Helper()
	f := &fakeAPI{t: t, platform: attesttest.NewPlatform(t), objects: map[string]*certificatesv1.CertificateSigningRequest{}, lifetime: time.Hour}
	f.changed = sync.NewCond(&f.mu)
	var err error
	f.caKey = testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, f.caKey.Public(), f.caKey)
	if err == nil {
		f.caCert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	f.server.EnableHTTP2 = true
	f.server.StartTLS()
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	f.verifier = f.newVerifier()
	return f
}

// now is the clock of certificates, on both sides: who moves it waits for no certificate to
// end, and none ends on a slow machine before its time.
func (f *fakeAPI) now() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }

// move moves it on to an instant.
func (f *fakeAPI) move(to time.Time) { f.ahead.Add(int64(to.Sub(f.now()))) }

// newVerifier makes the control plane's side of a platform's documents, which reads those versions;
// none means only version 1.
func (f *fakeAPI) newVerifier(versions ...int) *attest.Verifier {
	f.t.Helper()
	kind, err := document.NewKind(document.KindConfig{Provider: attesttest.PlatformProvider, Versions: versions, Identities: []attest.Grammar{{Kind: attesttest.PlatformProvider}},
		ValueSize: sha256.Size, Platform: f.platform})
	if err != nil {
		f.t.Fatal(err)
	}
	ring := testkit.Must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now().Add(-time.Hour))))
	id := testkit.Must(attest.ClusterID(f.server.Certificate()))
	serving := testkit.Must(csr.PurposeServing.SignerName(attesttest.PlatformProvider))
	v, err := attest.NewVerifier(attest.VerifierConfig{KeyRing: ring, Kinds: []attest.Kind{kind},
		Policy: &csr.Policy{ClusterIDs: []string{id}, SignerNames: []string{csr.SignerKubeAPIServerClientKubelet, serving}, Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			name := q.NodeName
			return &csr.Machine{Name: "machine-of-" + name, UID: "u", NodeName: name, BootstrapReady: true, DNSNames: []string{name}, IPAddresses: []netip.Addr{testAddress()}}, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			if r.Machine != "platform:"+attest.Identity(attesttest.MachineOne) {
				return nil, attest.NotMember("it is another machine")
			}
			a := r.InsecureAdmitAnyone()
			a.ProviderID, a.DNSNames, a.IPAddresses = testProviderID, []string{testNode}, []netip.Addr{testAddress()}
			return a, nil
		})})
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

// config is how the server is reached with the bootstrap token.
func (f *fakeAPI) config() (*rest.Config, error) {
	c := &rest.Config{Host: f.server.URL, BearerToken: testToken, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})}}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noToken {
		c.BearerToken = ""
	}
	return c, nil
}

// set changes the server's behaviour.
func (f *fakeAPI) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed.Broadcast()
}

// calls counts the calls with a prefix, "create system:bootstrap:attest" for example.
func (f *fakeAPI) calls(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, line := range f.log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// user authenticates.
func (f *fakeAPI) user(r *http.Request) (name string, groups []string) {
	if len(r.TLS.PeerCertificates) != 0 {
		roots := x509.NewCertPool()
		roots.AddCert(f.caCert)
		leaf := r.TLS.PeerCertificates[0]
		if leaf.Equal(f.unknown) {
			return "", nil
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: f.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
			return leaf.Subject.CommonName, append(leaf.Subject.Organization, csr.AuthenticatedGroup)
		}
	}
	if r.Header.Get("Authorization") == "Bearer "+testToken && !f.noToken {
		return csr.BootstrapUserPrefix + "attest", []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
	}
	return "", nil
}

const (
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	accessPath   = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	reviewsPath  = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	user, groups := f.user(r)
	name, _ := strings.CutPrefix(r.URL.Path, requestsPath+"/")
	verb := map[string]string{http.MethodPost: "create", http.MethodGet: "get"}[r.Method]
	switch {
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	case r.URL.Path == requestsPath && r.Method == http.MethodGet:
		verb = "list"
	case r.URL.Path == reviewsPath:
		verb = "review"
	case r.URL.Path == accessPath:
		verb = "access"
	}
	f.log = append(f.log, verb+" "+user)
	switch {
	case f.down:
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case user == "":
		fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	case verb == "review" && f.review != nil:
		f.review(w)
	case verb == "review":
		answer(w, http.StatusCreated, &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user, Groups: groups}}})
	case verb == "access":
		answer(w, http.StatusCreated, &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}})
	case verb == "create":
		f.create(w, r, user, groups)
	case verb == "watch":
		f.watch(w, r)
	case verb == "get" && f.objects[name] != nil:
		answer(w, http.StatusOK, f.objects[name])
	default:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	answer(w, code, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason)})
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func (f *fakeAPI) create(w http.ResponseWriter, r *http.Request, user string, groups []string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the node has hung up
	}
	o := new(certificatesv1.CertificateSigningRequest)
	if err := json.Unmarshal(body, o); err != nil {
		f.t.Errorf("a request that cannot be read: %v", err)
	}
	f.version++
	o.APIVersion, o.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	o.Name, o.UID = o.GenerateName+strconv.Itoa(f.version), types.UID("uid-"+strconv.Itoa(f.version))
	o.ResourceVersion, o.CreationTimestamp = strconv.Itoa(f.version), metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	o.Spec.Username, o.Spec.Groups = user, groups
	f.objects[o.Name] = o
	filed := o.DeepCopy()
	answer(w, http.StatusCreated, filed)
	go f.control(o.Name)
}

// control is the control plane.
func (f *fakeAPI) control(name string) {
	time.Sleep(2 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.away {
		f.changed.Wait()
	}
	o := f.objects[name]
	if o == nil {
		return
	}
	o = o.DeepCopy()
	if f.decide == nil || !f.decide(o) {
		f.verify(o)
	}
	f.version++
	o.ResourceVersion = strconv.Itoa(f.version)
	f.objects[name] = o
	f.changed.Broadcast()
}

// verify challenges a hello, and signs or denies an answer.
func (f *fakeAPI) verify(o *certificatesv1.CertificateSigningRequest) {
	text, err := json.Marshal(o)
	if err != nil {
		f.t.Error(err)
	}
	request, err := csr.ParseServerObject(text)
	if err != nil {
		f.t.Error(err)
		return
	}
	unplaced := csr.UnplacedDecision{}
	switch {
	case strings.HasPrefix(o.Spec.SignerName, "cluster.x-k8s.io/kubelet-attestation-challenge-"):
		var challenge []byte
		challenge, err = f.verifier.Challenge(context.Background(), request)
		unplaced = attest.ChallengeDecision(challenge, err)
	default:
		var result *attest.Result
		result, err = f.verifier.Verify(context.Background(), request)
		if unplaced = csr.Decide(err); err == nil {
			unplaced = result.Attested().Decision()
		}
	}
	if unsupported, ok := errors.AsType[*csr.UnsupportedVersionError](err); ok {
		key, value := unsupported.Annotation()
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, value)
	}
	decision := unplaced.For(request)
	condition(o, decision.Condition, decision.Reason, decision.Message)
	if decision.Condition == csr.ConditionApproved {
		o.Status.Certificate = f.issue(o)
	}
}

func condition(o *certificatesv1.CertificateSigningRequest, kind, reason, message string) {
	o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.RequestConditionType(kind), Status: "True", Reason: reason, Message: message})
}

// issue signs as kube-controller-manager does: dated back by five minutes.
func (f *fakeAPI) issue(o *certificatesv1.CertificateSigningRequest) []byte {
	block, _ := pem.Decode(o.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(request.DNSNames) != 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(f.version) + 1), Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, NotBefore: f.now().Add(-5 * time.Minute), NotAfter: f.now().Add(f.lifetime)}
	if o.Spec.SignerName == csr.SignerRecoveryTPM {
		template.NotAfter = f.now().Add(12 * time.Hour)
	}
	if f.sign != nil {
		f.sign(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, f.caCert, request.PublicKey, f.caKey)
	if err != nil {
		f.t.Error(err)
	}
	return append([]byte("text around it\n"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
}

// watch serves the changes of one object.
func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	seen, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if !ok || err != nil {
		f.t.Errorf("a watch of everything: %s", r.URL)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	if f.cutWatch > 0 {
		f.cutWatch--
		return
	}
	stop := context.AfterFunc(r.Context(), func() { f.set(func() {}) })
	defer stop()
	there := f.objects[name] != nil
	for r.Context().Err() == nil && !f.down {
		o := f.objects[name]
		if o == nil {
			if there {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "DELETED", "object": &certificatesv1.CertificateSigningRequest{
					TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}, ObjectMeta: metav1.ObjectMeta{Name: name}}})
				w.(http.Flusher).Flush()
			}
			return
		}
		if version, _ := strconv.Atoi(o.ResourceVersion); version > seen {
			seen = version
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": o})
			w.(http.Flusher).Flush()
		}
		f.changed.Wait()
	}
}

// documents is the kind of evidence of these tests.
type documents struct {
	f       *fakeAPI
	machine string
	opened  atomic.Int32
	left    time.Duration // that the last attempt had
	fails   error
}

func (d *documents) Provider() string { return attesttest.PlatformProvider }

func (d *documents) Open(ctx context.Context) (attest.Prover, error) {
	if deadline, ok := ctx.Deadline(); ok {
		d.left = time.Until(deadline)
	}
	d.opened.Add(1)
	if d.fails != nil {
		return nil, d.fails
	}
	prover, err := document.NewProver(attesttest.PlatformProvider, 1, d.f.platform.Machine(d.machine))
	if err != nil {
		return nil, err
	}
	return &keeping{Prover: prover}, nil
}

// keeping is evidence of a machine that keeps keys: the file is the key itself, under
// another name.
type keeping struct{ attest.Prover }

type kept struct{ *ecdsa.PrivateKey }

func (k kept) Close() error { return nil }

func (k kept) File() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.PrivateKey)
	return pem.EncodeToMemory(&pem.Block{Type: "SEALED KEY", Bytes: der}), err
}

func (k *keeping) CreateKey(context.Context) (sealedKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return kept{key}, err
}

func (k *keeping) LoadKey(_ context.Context, file []byte) (sealedKey, error) {
	block, rest := pem.Decode(file)
	if block == nil || block.Type != "SEALED KEY" || len(bytes.TrimSpace(rest)) != 0 {
		return nil, fs.ErrNotExist
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	k256, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("another key")
	}
	return kept{k256}, nil
}

var _ crypto.Signer = kept{}

// newNode makes a node of the server's cluster.
func newNode(t testing.TB, f *fakeAPI, change func(*Config)) (*Authenticator, *documents) {
	t.Helper()
	kind := &documents{f: f, machine: attesttest.MachineOne}
	c := Config{NodeName: testNode, Dir: t.TempDir(), API: f.config, Kind: kind, Lifetime: time.Hour, Now: f.now, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	dir := c.Dir
	if change != nil {
		change(&c)
	}
	if c.RecoverySigner != "" && c.Dir == dir {
		c.Dir = mounttest.Disk(t)
	}
	a := testkit.Must(New(c))
	return a, kind
}

// stored returns the usable stored pair of a file.
func (a *Authenticator) stored(file string) *certstore.Pair {
	for _, i := range a.slots {
		if file == i.file || file == i.previous {
			return a.load(i, file)
		}
	}
	return nil
}

// onDisk returns the stored record of one certificate.
func (a *Authenticator) onDisk(file string) attempts {
	text, _ := a.store.Read(stateFile, maxStateSize)
	return parseState(text)[file]
}

// again is the same node in another process.
func again(t *testing.T, a *Authenticator) *Authenticator {
	t.Helper()
	made := testkit.Must(New(a.config))
	return made
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("it did not happen: %s", what)
}
