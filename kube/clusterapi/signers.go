package clusterapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// signerFields are the fields of an infrastructure cluster's status in which its provider states the
// signers of certificates.
var signerFields = []struct {
	name    string
	purpose csr.Purpose
}{{"kubeletClientCertificateSigner", csr.PurposeClient}, {"kubeletServingCertificateSigner", csr.PurposeServing}}

const (
	// signersInterval is how often the signer names are compared.
	signersInterval = time.Minute
	// reporter is the controller in Events.
	reporter = "node-attestation-controller"
	// reasonSigners is the reason of the Event about signer names that are not served.
	reasonSigners = "SignerNamesDiffer"
)

// signerComparison is the manager's runnable that compares signer names.
type signerComparison struct {
	*Inventory
	events events.EventRecorder
	last   string // reported
}

// Start compares until ctx ends.
func (s *signerComparison) Start(ctx context.Context) error { //goroutine: objects that Cluster API and its providers wrote
	wait.UntilWithContext(ctx, s.look, signersInterval) //goroutine: in this one; objects that Cluster API and its providers wrote
	return nil
}

// look compares once, and reports each change. An error leaves the names uncompared.
func (s *signerComparison) look(ctx context.Context) {
	object, differs, err := s.compare(ctx)
	report := differs
	if err != nil {
		report = err.Error()
	}
	if report == s.last {
		return
	}
	s.last = report
	logger := log.FromContext(ctx).WithValues("cluster", s.namespace+"/"+s.cluster)
	switch {
	case err != nil:
		logger.Info("signer names of the infrastructure cluster not compared; the next try is in a minute", "why", report)
	case differs != "":
		logger.Info("signer names of the infrastructure cluster are not served; requests are decided all the same", "why", differs)
		s.events.Eventf(object, nil, corev1.EventTypeWarning, reasonSigners, "CompareSigners", "%s", differs)
	default:
		logger.Info("signer names of the infrastructure cluster agree with the served signers")
	}
}

// compare returns the Cluster, and which signer names of its infrastructure are not served, or "". A
// field that is not set is not compared.
func (s *signerComparison) compare(ctx context.Context) (*unstructured.Unstructured, string, error) {
	object := object(s.kinds.cluster)
	if err := s.cached.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.cluster}, object); err != nil {
		return nil, "", err
	}
	ref, _, _ := unstructured.NestedMap(object.Object, "spec", "infrastructureRef")
	kind, name := text(ref, "kind"), text(ref, "name")
	group, _, versioned := strings.Cut(text(ref, "apiVersion"), "/") // v1beta1
	if !versioned {
		group = text(ref, "apiGroup") // v1beta2
	}
	if kind == "" || name == "" {
		return object, "", nil // a Cluster without infrastructure
	}
	mapping, err := s.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	if err != nil {
		return nil, "", err
	}
	infrastructure := new(unstructured.Unstructured)
	infrastructure.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := s.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, infrastructure); err != nil {
		return nil, "", err
	}
	var differ []string
	for _, field := range signerFields {
		signer := text(infrastructure.Object, "status", field.name)
		purpose, err := csr.PurposeOf(signer)
		if signer != "" && (err != nil || purpose != field.purpose || !slices.Contains(s.signers, signer)) {
			differ = append(differ, "status."+field.name+" "+refusal.Quote(signer))
		}
	}
	if differ == nil {
		return object, "", nil
	}
	return object, fmt.Sprintf("%s %s has %s; the controller serves %s", kind, name, strings.Join(differ, " and "), refusal.Quotes(s.signers)), nil
}
