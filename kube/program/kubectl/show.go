package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/kube/program/kubectl/internal/explain"
	"github.com/nodeattest/nodeattest/kube/signer"
)

// explain shows the state of a request.
func (p *plugin) explain(ctx context.Context, name string) error {
	var object certificatesv1.CertificateSigningRequest
	if err := p.client.Get(ctx, client.ObjectKey{Name: name}, &object); err != nil {
		return err
	}
	request := controller.Request(&object)
	f := explain.Facts{Request: request, Kinds: p.kinds, Held: p.held, Now: p.now()}
	c, err := p.configuration(ctx)
	if err != nil {
		return err
	}
	if c != nil {
		f.Policy = p.policy(c, request)
		if len(c.settings.Cluster.IDs) != 0 {
			f.ClusterIDs = c.settings.Cluster.IDs
		}
	}
	if f.Related, err = p.related(ctx, request); err != nil {
		return err
	}
	if f.Notes, err = p.notes(ctx, request); err != nil {
		return err
	}
	x, err := explain.Explain(ctx, f)
	if err != nil {
		return err
	}
	return x.WriteText(p.out)
}

// policy returns the controller's policy according to its configuration; nil without an inventory.
func (p *plugin) policy(c *configuration, request *csr.Request) *csr.Policy {
	if c.listed == nil {
		return nil
	}
	ids := c.settings.Cluster.IDs
	if len(ids) == 0 { // the CA's file is the controller's
		ids = []string{"the controller's"}
	}
	var signers []string // of the configuration
	if request.Spec.SignerName == csr.SignerKubeletServing && c.settings.Signers.BuiltInDuration.Duration != 0 ||
		request.Spec.SignerName == csr.SignerClientInsecure && c.settings.InsecureSigner != nil {
		signers = []string{request.Spec.SignerName}
	}
	policy := c.settings.Policy(ids, c.listed.Machine, signers...)
	node, _ := request.User.Requester()
	policy.IssuedRecord = func(ctx context.Context, credentialID string, request *csr.Request) (*csr.IssuedRecord, error) {
		_, r, err := p.record(ctx, node.NodeName)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, csr.ErrNoRecord
		}
		return membership.IssuedRecords(r)(ctx, credentialID, request)
	}
	return policy
}

// related returns the other requests with the same PKCS#10 request.
func (p *plugin) related(ctx context.Context, request *csr.Request) ([]*csr.Request, error) {
	bundle, err := request.Parsed().Bundle()
	if err != nil {
		return nil, nil //nolint:nilerr // the explanation says so
	}
	var all []*csr.Request
	err = p.eachRequest(ctx, func(other *csr.Request) {
		if b, err := other.Parsed().Bundle(); err == nil && other.Metadata.UID != request.Metadata.UID && bytes.Equal(b.Request, bundle.Request) && len(all) < maxRelated {
			other.Spec.Request = nil // the same as the request's
			all = append(all, other)
		}
	})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return all, err
}

// maxRelated is how many requests with the same PKCS#10 request are kept: any account that reads requests can copy one.
const maxRelated = 100

// notes returns the notes of the Events about a request, which are in namespace "default". Every
// node can write Events: only Events with the condition's reason and the controller's or a signer's name
// are taken, neither of which is proven.
func (p *plugin) notes(ctx context.Context, request *csr.Request) ([]string, error) {
	var list corev1.EventList
	err := p.client.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault), client.Limit(maxEvents),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", request.Metadata.UID)})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int {
		return cmp.Or(a.EventTime.Compare(b.EventTime.Time), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	var notes []string
	for i := range list.Items {
		e := &list.Items[i]
		by := slices.Contains([]string{controller.DefaultName, signer.DefaultName, insecure.Signer, insecure.Approver}, e.ReportingController)
		agrees := slices.ContainsFunc(request.Status.Conditions, func(c csr.Condition) bool { return c.Reason == e.Reason }) ||
			e.Reason == "UnattestedCertificate" && len(request.Status.Certificate) != 0
		if by && agrees {
			notes = append(notes, e.Message)
		}
	}
	return notes, err
}

// maxEvents is how many Events about a request are read.
const maxEvents = 50
