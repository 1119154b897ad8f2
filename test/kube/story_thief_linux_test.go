package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A thief has a bootstrap token, and asks for certificates in every way that it allows.
type thief struct {
	*cluster
	as    client.Client
	user  string
	ways  map[string]func(ctx context.Context, name string) error
	since int // of the audit log's entries, those before are not looked at

	asked int
	tried map[string]*outcome
	end   func()
}

// An outcome is how often the API server took and refused the requests of a way, with the last one's name or refusal.
type outcome struct {
	taken, refused int
	last           string
	err            error
}

// newThief steals a token of kubeadm's.
func (s *story) newThief(t *testing.T) *thief {
	t.Helper()
	token := s.planes[0].token(t)
	id, _, _ := strings.Cut(token, ".")
	f := &thief{cluster: s.cluster, as: s.client(t, s.withToken(t, token)), user: csr.BootstrapUserPrefix + id,
		ways: map[string]func(context.Context, string) error{}, tried: map[string]*outcome{}}
	victim := s.workers[0].name
	for _, node := range []string{victim, "thief-1"} {
		for _, signer := range []string{csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeletServing, certificatesv1.KubeAPIServerClientSignerName, "kubernetes.io/legacy-unknown",
			csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM, csr.SignerChallengeTPM, csr.SignerClientInsecure} {
			f.ways["plain, for "+node+" by "+signer] = f.files(s.plainFor(t, node, signer))
		}
		f.ways["a TPM of the thief's, for "+node] = f.attests(s.nodeOn(t, tpmsim.Swtpm(t, tpmsim.Options{CA: s.tpms}), node))
	}
	plain := s.plainFor(t, victim, csr.SignerKubeAPIServerClientKubelet)
	f.ways["in an emergency that does not exist"] = f.files(plain, func(o *certificatesv1.CertificateSigningRequest) {
		o.Annotations = map[string]string{"nodeattest.github.io/break-glass": "the TPM is broken"}
	})
	f.ways["another node's request again"] = f.repeats(nil)
	f.ways["another node's evidence, with the thief's key"] = f.repeats(plain)
	f.ways["approved by the thief"] = f.decides(s.plainFor(t, victim, certificatesv1.KubeAPIServerClientSignerName), "approval")
	f.ways["signed by the thief"] = f.decides(plain, "status")
	as := s.withToken(t, token)
	as.Impersonate = rest.ImpersonationConfig{UserName: csr.NodeUserPrefix + victim, Groups: []string{csr.NodesGroup}}
	node := s.client(t, as)
	f.ways["as the node"] = func(ctx context.Context, name string) error { return node.Create(ctx, named(requestOf(plain), name)) }
	return f
}

func named(o *certificatesv1.CertificateSigningRequest, name string) *certificatesv1.CertificateSigningRequest {
	o.ObjectMeta = metav1.ObjectMeta{Name: name, Annotations: o.Annotations}
	return o
}

// files files a request, with changes.
func (f *thief) files(spec *csr.Spec, changes ...func(*certificatesv1.CertificateSigningRequest)) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		o := named(requestOf(spec), name)
		for _, change := range changes {
			change(o)
		}
		return f.as.Create(ctx, o)
	}
}

// attests files evidence of a machine that is no node, and answers the challenge of the attempt before.
func (f *thief) attests(n *attesttest.Node) func(context.Context, string) error {
	var before string
	return func(ctx context.Context, name string) error {
		object := new(certificatesv1.CertificateSigningRequest)
		if before != "" && f.as.Get(ctx, client.ObjectKey{Name: before}, object) == nil {
			if challenge, err := attest.ChallengeOf(controller.Request(object)); err == nil {
				answer, err := n.Attester.Answer(ctx, challenge, n.Certified, n.Subject)
				if err != nil {
					return err
				}
				before = ""
				return f.as.Create(ctx, named(requestOf(answer), name))
			}
		}
		hello, err := n.Attester.Hello(ctx, n.Subject)
		if err != nil {
			return err
		}
		before = name
		return f.as.Create(ctx, named(requestOf(hello), name))
	}
}

var errNoEvidence = errors.New("no node has filed evidence")

// repeats files the newest request with evidence of a node, or its evidence with a request of the thief's.
func (f *thief) repeats(own *csr.Spec) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		var all certificatesv1.CertificateSigningRequestList
		if err := f.as.List(ctx, &all); err != nil {
			return err
		}
		var newest *certificatesv1.CertificateSigningRequest
		for i := range all.Items {
			o := &all.Items[i]
			if o.Spec.Username != f.user && bytes.Contains(o.Spec.Request, []byte("ATTESTATION")) && (newest == nil || newest.CreationTimestamp.Before(&o.CreationTimestamp)) {
				newest = o
			}
		}
		if newest == nil {
			return errNoEvidence
		}
		spec := newest.Spec
		if own != nil {
			const end = "-----END CERTIFICATE REQUEST-----\n"
			_, evidence, _ := strings.Cut(string(spec.Request), end)
			request, _, _ := strings.Cut(string(own.Request), end)
			spec.Request = []byte(request + end + evidence)
		}
		spec.Username, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
		return f.as.Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
}

// decides files a request, and then writes its approval or its certificate.
func (f *thief) decides(spec *csr.Spec, subresource string) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		o := named(requestOf(spec), name)
		if err := f.as.Create(ctx, o); err != nil {
			o.Name = name // of a request that is not there: the right is missing all the same
		}
		o.Status.Conditions, o.Status.Certificate = condition(certificatesv1.CertificateApproved), []byte("x")
		return f.as.SubResource(subresource).Update(ctx, o)
	}
}

// asks tries every way once.
func (f *thief) asks(ctx context.Context) {
	for _, way := range slices.Sorted(maps.Keys(f.ways)) {
		f.asked++
		o := f.tried[way]
		if o == nil {
			o = new(outcome)
			f.tried[way] = o
		}
		if o.last, o.err = fmt.Sprintf("stolen-%d", f.asked), f.ways[way](ctx, fmt.Sprintf("stolen-%d", f.asked)); o.err == nil {
			o.taken++
		} else {
			o.refused++
		}
	}
}

// begin has the thief ask each minute, or each few seconds in a short test, until end ends it. From now on signed
// looks at requests that are filed from now on.
func (f *thief) begin(t *testing.T) {
	t.Helper()
	pause := 3 * time.Second
	if os.Getenv(longVar) != "" {
		pause = time.Minute
	}
	f.since, f.tried = len(f.audit(t)), map[string]*outcome{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for ctx.Err() == nil {
			f.asks(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	f.end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(f.end)
}

// report says what became of each way: how often requests were filed, and the last one's end.
func (f *thief) report(t *testing.T) (filed int, report string) {
	t.Helper()
	for _, way := range slices.Sorted(maps.Keys(f.tried)) {
		o, end := f.tried[way], "not decided"
		filed += o.taken
		object := new(certificatesv1.CertificateSigningRequest)
		if o.err != nil {
			end = o.err.Error()
		} else if err := f.admin.Get(t.Context(), client.ObjectKey{Name: o.last}, object); err != nil {
			end = err.Error()
		}
		for _, c := range object.Status.Conditions {
			end = string(c.Type) + " " + c.Reason
		}
		report += fmt.Sprintf("%s: %d filed, %d refused at once; %.160s\n", way, o.taken, o.refused, strings.ReplaceAll(end, o.last, "NAME"))
	}
	return filed, report
}

// signed returns the thief's requests that the audit log has a certificate of: another account, a signer, has
// written their status.
func (f *thief) signed(t *testing.T) (names []string) {
	t.Helper()
	filed := map[string]bool{}
	for _, a := range f.audit(t)[f.since:] {
		of := &a.ObjectRef
		if of.Resource != "certificatesigningrequests" || a.ResponseStatus.Code < 200 || a.ResponseStatus.Code > 299 {
			continue
		}
		switch {
		case a.Verb == "create" && a.User.Username == f.user:
			filed[of.Name] = true
		case (a.Verb == "update" || a.Verb == "patch") && of.Subresource == "status" && filed[of.Name]:
			names = append(names, of.Name)
		}
	}
	return names
}
