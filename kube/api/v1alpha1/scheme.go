package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of this package, and Version its version.
const (
	Group   = "nodeattest.github.io"
	Version = "v1alpha1"
)

// GroupVersion returns the group and version of every type here.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// AddToScheme makes the types known to a scheme, for clients and managers. It returns no
// error; its form is that of the functions that schemes are made with.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&AttestedNode{}, &AttestedNodeList{},
		&AttestedMachine{}, &AttestedMachineList{},
		&AttestedMachineUID{}, &AttestedMachineUIDList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
