// Reconciler is the control plane's side of a join as a custom controller, built with
// controller-runtime: it challenges nodes, verifies their answers, approves and signs. It decides
// requests to the signers cluster.x-k8s.io/kubelet-attestation-challenge-tpm and
// cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm, with the account and the least rights of rbac.yaml,
// which also has the empty Secret of the key ring.
package main

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"log"
	"os"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/keyring"
)

func main() {
	caCert := flag.String("ca-cert", "ca.crt", "the cluster's CA for clients")
	caKey := flag.String("ca-key", "ca.key", "its key")
	roots := flag.String("roots", "ak-roots.pem", "the roots of AK certificates that are trusted")
	machines := flag.String("machines", "machines.txt", "the list of machines: identity, node name, provider ID")
	namespace := flag.String("namespace", "kube-system", "where the Secret of the key ring is")
	flag.Parse()

	pair := must(tls.LoadX509KeyPair(*caCert, *caKey))
	list := must(membership.ParseStaticList(must(os.ReadFile(*machines))))
	ring := new(attest.KeyRing)
	manager := must(ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}}))
	r := &reconciler{Client: manager.GetClient()}
	clusterIDs := []string{must(attest.ClusterID(pair.Leaf))}
	r.ca = must(csr.NewCA([]*x509.Certificate{pair.Leaf}, pair.PrivateKey.(crypto.Signer), csr.CAConfig{ClusterIDs: clusterIDs, SignerNames: []string{csr.SignerClientTPM}}))
	trusted := tpmcert.Issuer{Roots: must(tpmcert.ParseCertificatesPEM(must(os.ReadFile(*roots)))), Profile: tpmcert.ProfileTCG()}
	r.verifier = must(attest.NewVerifier(attest.VerifierConfig{
		KeyRing: ring, Authorizer: list,
		Kinds:  []attest.Kind{must(tpm.NewKind(tpm.KindConfig{AKIssuers: []tpmcert.Issuer{trusted}}))},
		Policy: &csr.Policy{ClusterIDs: clusterIDs, SignerNames: []string{csr.SignerClientTPM}, Machines: list.Machine},
	}))
	must(0, manager.Add(must(keyring.New(keyring.Config{
		Reader: manager.GetAPIReader(), Writer: r.Client, Ring: ring,
		Secret: client.ObjectKey{Namespace: *namespace, Name: "nodeattest-challenge-keys"},
	}))))
	must(0, ctrl.NewControllerManagedBy(manager).For(&certificatesv1.CertificateSigningRequest{}).Complete(r))
	must(0, manager.Start(ctrl.SetupSignalHandler()))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

type reconciler struct {
	client.Client
	verifier *attest.Verifier
	ca       *csr.CA
}

// Reconcile decides on one request. It writes to the object that was checked: if that has
// changed since, the API server answers with a conflict.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var object certificatesv1.CertificateSigningRequest
	if err := r.Get(ctx, key.NamespacedName, &object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	request, err := view(&object)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision, result, err := r.decide(ctx, request)
	if decision.Verdict == csr.VerdictRetry {
		return ctrl.Result{}, err
	}
	if decision.Condition != "" {
		object.Status.Conditions = append(object.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type:   certificatesv1.RequestConditionType(decision.Condition),
			Status: corev1.ConditionTrue, Reason: decision.Reason, Message: decision.Message, LastUpdateTime: metav1.Now(),
		})
		if err := r.SubResource(decision.Subresource).Update(ctx, &object); err != nil {
			return ctrl.Result{}, err
		}
	}
	if decision.Verdict != csr.VerdictApprove {
		return ctrl.Result{}, nil
	}
	issued, err := r.ca.Issue(ctx, result.Attested())
	if err != nil {
		return ctrl.Result{}, err
	}
	object.Status.Certificate = issued.PEM
	return ctrl.Result{}, r.Status().Update(ctx, &object)
}

// decide challenges a hello, and verifies an answer.
func (r *reconciler) decide(ctx context.Context, request *csr.Request) (csr.Decision, *attest.Result, error) {
	if request.Spec.SignerName == csr.SignerChallengeTPM {
		challenge, err := r.verifier.Challenge(ctx, request)
		return attest.ChallengeDecision(challenge, err).For(request), nil, err
	}
	result, err := r.verifier.Verify(ctx, request)
	if err != nil {
		return csr.Decide(err).For(request), nil, err
	}
	return result.Attested().Decision().For(request), result, nil
}

// view returns the object as the SDK sees it: the JSON is the same.
func view(object *certificatesv1.CertificateSigningRequest) (*csr.Request, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return csr.ParseServerObject(text)
}
