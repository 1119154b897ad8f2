package main

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
)

const infrastructure = "infrastructure.cluster.x-k8s.io/v1beta2"

type fields = map[string]any

// provider reconciles the objects of the infrastructure.
type provider struct{ client.Client }

// cluster states the signers of the nodes' certificates (package clusterapi, "Providers").
func (p *provider) cluster(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	o := object(infrastructure, "FakeCluster")
	if err := p.Get(ctx, r.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, p.Status().Patch(ctx, o, merge(fields{"status": fields{"initialization": fields{"provisioned": true},
		"kubeletClientCertificateSigner": csr.SignerKubeAPIServerClientKubelet, "kubeletServingCertificateSigner": csr.SignerKubeletServing}}))
}

// machine provisions a FakeMachine. First the Machine gets the identity of the TPM, so that no other machine
// joins as this one; then the provider ID, without which none joins.
func (p *provider) machine(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	fake := object(infrastructure, "FakeMachine")
	if err := p.Get(ctx, r.NamespacedName, fake); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(fake)
	if owner == nil || owner.Kind != "Machine" {
		return ctrl.Result{}, nil // Cluster API writes it later
	}
	socket, _, _ := unstructured.NestedString(fake.Object, "spec", "socket")
	id, err := identity(ctx, socket)
	if err != nil {
		return ctrl.Result{}, err
	}
	machine := object(owner.APIVersion, owner.Kind)
	machine.SetNamespace(fake.GetNamespace())
	machine.SetName(owner.Name)
	notes := fields{clusterapi.AnnotationIdentity: string(id), clusterapi.AnnotationKind: tpm.Provider}
	if err := p.Patch(ctx, machine, merge(fields{"metadata": fields{"uid": string(owner.UID), "annotations": notes}})); err != nil {
		return ctrl.Result{}, err
	}
	providerID := "fake://" + fake.GetNamespace() + "/" + fake.GetName()
	if err := p.Patch(ctx, fake, merge(fields{"spec": fields{"providerID": providerID}})); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, p.Status().Patch(ctx, fake, merge(fields{"status": fields{"initialization": fields{"provisioned": true}}}))
}

// identity reads the identity of the TPM behind a socket from the certificate of its EK.
func identity(ctx context.Context, socket string) (attest.Identity, error) {
	device, err := tpm.OpenTPM(socket)
	if err != nil {
		return "", err
	}
	defer device.Close()
	certificate, err := tpmkey.ReadNVCertificate(ctx, device, tpm.EKRSA2048().CertificateIndex)
	if err != nil {
		return "", err
	}
	ek, err := tpmcert.ParseEK(certificate)
	if err != nil {
		return "", err
	}
	return ek.Identity(), nil
}

func object(version, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: fields{"apiVersion": version, "kind": kind}}
}

// merge makes a merge patch, which changes the stated fields alone.
func merge(change fields) client.Patch {
	text, _ := json.Marshal(change) // of strings and booleans
	return client.RawPatch(types.MergePatchType, text)
}
