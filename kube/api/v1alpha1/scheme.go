package v1alpha1

import (
	"errors"

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

// AddToScheme adds the types to a scheme, for clients and managers. The only error is
// that there is no scheme of runtime.NewScheme.
func AddToScheme(s *runtime.Scheme) error {
	if s == nil || s.Converter() == nil {
		return errors.New("v1alpha1: a scheme that runtime.NewScheme did not make")
	}
	s.AddKnownTypes(GroupVersion(),
		&AttestedNode{}, &AttestedNodeList{},
		&AttestedMachine{}, &AttestedMachineList{},
		&AttestedMachineUID{}, &AttestedMachineUIDList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
